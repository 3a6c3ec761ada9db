#!/usr/bin/env bash
# Architectures of transformers, clean: docs/evidence/families.md.
#
#   scripts/families.sh [ARGUMENTS OF scripts/families.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/loop_libraries.sh
exec .venv/bin/python scripts/families.py "$@"
