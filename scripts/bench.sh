#!/usr/bin/env bash
# What the kernels, capture and a check cost on this machine; hours. Tables go to docs/; figures of
# kernels go to bench/README.md by hand, with machine and date.
#
#   GB=20 scripts/bench.sh    traces of so many GB for what is larger than memory (default 10)
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
scripts/configure.sh release
cmake --build --preset release
for bench in build/release/*_bench; do
  "$bench" --benchmark_min_time=0.5
done
for table in capture_cost record_cost trace_cost many_records step_rounding; do
  .venv/bin/python "bench/$table.py"
done
.venv/bin/python bench/large_tensor.py
.venv/bin/python bench/beside_torch.py
.venv/bin/python bench/large_pair.py --gb "${GB:-10}"
