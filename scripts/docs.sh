#!/usr/bin/env bash
# Builds the site of the documents into build/site. Any warning fails it: a link to a page, an
# anchor or a file that is not there, a page that no other leads to. Nothing is asked of a network,
# neither by the build nor by the pages.
#
#   scripts/docs.sh            build/site/index.html
#   scripts/docs.sh --check    no pages, only what a build would complain about
#   scripts/docs.sh ... FOLDER   of another checkout
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=$PWD/.venv/bin/python
builder=html
if [[ ${1:-} == --check ]]; then
  builder=dummy
  shift
fi
cd "${1:-.}"
# Pages that are gone go.
[[ $builder == dummy ]] || rm -rf build/site
# A tree of each page is kept for both builders, so that only what changed is read again.
"$python" -m sphinx -b $builder -q --fail-on-warning --keep-going -c docs -d build/docs . build/site
if [[ $builder == dummy ]]; then exit; fi
if grep -rlE --include='*.html' --include='*.css' \
  '(<script[^>]* src=|<img[^>]* src=|<link[^>]* href=|@import |url\()["'"'"']?(https?:)?//' build/site; then
  echo 'docs: these files ask other hosts for something: pages have to work without a network' >&2
  exit 1
fi
echo "docs: build/site/index.html"
