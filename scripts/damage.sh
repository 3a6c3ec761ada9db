#!/usr/bin/env bash
# Damages traces, checks each, and writes what came of it to docs/evidence/damage.md.
#   scripts/damage.sh [CASES] [further options of build/release/fuzz/damage]
# Real runs instead of the small ones it writes: --pair NAME=REFERENCE,CANDIDATE
set -euo pipefail
cd "$(dirname "$0")/.."

cases=${1:-100000}
shift || true
scripts/setup_system.sh
cmake --preset release -DTTRACE_BUILD_TESTS=ON > /dev/null
cmake --build --preset release --target damage

status=0
build/release/fuzz/damage --cases "$cases" --table build/damage_table.md "$@" ||
  status=$?
sed '/^<!-- table -->$/q' docs/evidence/damage.md > build/damage.md
{ echo; cat build/damage_table.md; } >> build/damage.md
cp build/damage.md docs/evidence/damage.md
exit "$status"
