#!/usr/bin/env bash
# Training loops of other people, clean and with a bug: docs/loops.md. Installs
# what they use beside what is there, with torch as a constraint.
#
#   scripts/loops.sh [ARGUMENTS OF scripts/loops.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
stamp=.venv/.requirements-loops
if ! cmp -s requirements-loops.txt "$stamp"; then
  echo "setup: installing the libraries of requirements-loops.txt"
  "$python" -m pip install --quiet -c <(grep '^torch==' requirements-dev.txt) \
    -r requirements-loops.txt
  cp requirements-loops.txt "$stamp"
fi
exec "$python" scripts/loops.py "$@"
