#!/usr/bin/env bash
# What the kernels and capture cost on this machine. Figures go to bench/README.md by hand,
# with machine and date.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/configure.sh release
cmake --build --preset release
for bench in build/release/*_bench; do
  "$bench" --benchmark_min_time=0.5
done
for script in bench/*.py; do
  [[ -e $script ]] && .venv/bin/python "$script"
done
