#!/usr/bin/env bash
# Builds the fuzzers with clang and its sanitizers and runs each of them.
#   scripts/fuzz.sh [SECONDS] [FUZZER...]
# What they find lies in build/fuzz/found/; corpora grow in build/fuzz/corpus/.
set -euo pipefail
cd "$(dirname "$0")/.."

seconds=${1:-60}
shift || true
fuzzers=("$@")
((${#fuzzers[@]})) || fuzzers=(trace_decoder_fuzz whole_trace_fuzz result_fuzz)

scripts/setup_system.sh
cmake -S . -B build/fuzz -G Ninja -DCMAKE_CXX_COMPILER=clang++-14 \
  -DCMAKE_BUILD_TYPE=None -DTTRACE_BUILD_TESTS=OFF -DTTRACE_BUILD_FUZZERS=ON \
  -DCMAKE_CXX_FLAGS="-g -O1 -fsanitize=fuzzer-no-link,address,undefined -fno-sanitize-recover=undefined" \
  > /dev/null
cmake --build build/fuzz --target "${fuzzers[@]}"

failed=0
for fuzzer in "${fuzzers[@]}"; do
  corpus=build/fuzz/corpus/$fuzzer
  mkdir -p "$corpus" build/fuzz/found
  options=(-max_total_time="$seconds" -timeout=30 -rss_limit_mb=2048
    -artifact_prefix="build/fuzz/found/$fuzzer-" -print_final_stats=1)
  corpora=("$corpus")
  if [[ $fuzzer == trace_decoder_fuzz ]]; then
    corpora+=(fuzz/corpus)
  else
    options+=(-max_len=200000)
    export TTRACE_FUZZ_SEEDS=$corpus
  fi
  echo "== $fuzzer, $seconds s"
  build/fuzz/fuzz/"$fuzzer" -dict=fuzz/trace_decoder.dict "${options[@]}" \
    "${corpora[@]}" > "build/fuzz/$fuzzer.log" 2>&1 || failed=1
  grep -E "^(stat::number_of_executed_units|stat::peak_rss_mb|SUMMARY)|ERROR" \
    "build/fuzz/$fuzzer.log" || tail -n 5 "build/fuzz/$fuzzer.log"
done
exit "$failed"
