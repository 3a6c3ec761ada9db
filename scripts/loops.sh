#!/usr/bin/env bash
# Training loops of other people, clean and with a bug: docs/evidence/loops.md.
#
#   scripts/loops.sh [ARGUMENTS OF scripts/loops.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/loop_libraries.sh
exec .venv/bin/python scripts/loops.py "$@"
