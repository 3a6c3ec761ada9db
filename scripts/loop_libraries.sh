#!/usr/bin/env bash
# Installs what other people's loops use (requirements-loops.txt) beside what is
# there, with torch as a constraint. What is up to date is not touched.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
python=.venv/bin/python
stamp=.venv/.requirements-loops
if ! cmp -s requirements-loops.txt "$stamp"; then
  echo "setup: installing the libraries of requirements-loops.txt"
  "$python" -m pip install --quiet -c <(grep '^torch==' requirements-demo.txt) \
    -r requirements-loops.txt
  cp requirements-loops.txt "$stamp"
fi
