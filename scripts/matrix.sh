#!/usr/bin/env bash
# Every topology, every bug, the loops and the models of other people, and the
# tests too slow for `make test`. The table docs/evidence/matrix.md is resumable: finished
# cases are kept in matrix/.
#
#   scripts/matrix.sh [ARGUMENTS OF scripts/matrix.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
failed=0
.venv/bin/python scripts/matrix.py "$@" || failed=1
scripts/loops.sh || failed=1
scripts/families.sh || failed=1
.venv/bin/python -m pytest -m matrix python/tests zoo tests --ignore tests/test_cases.py || failed=1
exit "$failed"
