#!/usr/bin/env bash
# Every topology and every bug. What has passed with exactly this project is not
# run again, so that an interrupted run goes on where it was. Writes
# docs/matrix.md when all is done.
#
#   scripts/matrix.sh [PYTEST-ARGUMENTS...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
PYTHONPATH=scripts exec .venv/bin/python -m pytest -p resume_matrix -m "not build" \
  tests zoo "$@"
