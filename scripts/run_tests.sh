#!/usr/bin/env bash
# Everything that must hold before a change lands, from a fresh machine. One
# pytest run reports all of it, the C++ tests and static checks included
# (tests/test_build.py, tests/test_static_checks.py), so that the last line is
# its summary. Three workers for
# two cores: real runs wait for one another a good part of their time. A file's
# tests stay together, because they share what was recorded once, and files run
# in the order that conftest.py gives them.
#
#   scripts/run_tests.sh [PYTEST-ARGUMENTS...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/setup_system.sh
# The browser that opens reports is unpacked while packages are downloaded.
scripts/setup_system.sh chromium &
browser=$!
scripts/setup_python.sh
wait "$browser"
exec .venv/bin/python -m pytest -m "not matrix" -n 3 --dist loadfile --no-loadscope-reorder \
  --durations=30 "$@"
