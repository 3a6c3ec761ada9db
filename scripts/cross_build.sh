#!/usr/bin/env bash
# Builds the SIMD kernels for 64-bit Arm (NEON) and runs their unit tests under qemu, on a machine of
# another kind; then compiles them for a machine with SVE, which must not change what they use.
#
#   scripts/cross_build.sh [GTEST-ARGUMENTS...]
#
# Installs g++-aarch64-linux-gnu, qemu-user and googletest (root or sudo). Highway's arm64 library is
# unpacked under build/cross, beside this machine's packages and not among them.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
build=$PWD/build/cross
root=$build/root
objects=$build/objects
mkdir -p "$objects"
scripts/arm64_libraries.sh

# GCC 12 sees overlapping memory in std::string where there is none.
cxx=(aarch64-linux-gnu-g++ -std=c++20 -O2 -Wall -Wextra -Wno-restrict -Iinclude -I. -DFMT_HEADER_ONLY
  -I/usr/src/googletest/googletest/include -I/usr/src/googletest/googletest
  -I/usr/src/googletest/googlemock/include)
command -v ccache > /dev/null && cxx=(ccache "${cxx[@]}")
# Headers that are the same for all machines, without this machine's own in front of them.
mkdir -p "$build/include"
for header in hwy fmt xxhash.h xxh3.h; do
  ln -sfn "/usr/include/$header" "$build/include/$header"
done
cxx+=(-isystem "$build/include")

# As cmake/Stage.cmake says: what must be the same bits everywhere.
exact=$(sed -n '/^set_source_files_properties($/,/ffp-contract=off/s|.*{PROJECT_SOURCE_DIR}/||p' \
  cmake/Stage.cmake)
[[ -n $exact ]]

kernels=(src/base/{check,format,status}.cc src/region/*.cc src/numeric/*.cc
  src/compare/compare_{kernel,double_kernel,exact}.cc src/compare/compare_kernel_test.cc
  src/compare/cells/cell_{kernel,comparer,sums,grid}.cc src/compare/cells/cell_comparer_test.cc
  src/base/hypot_test.cc)
sources=()
for source in "${kernels[@]}"; do
  case $source in
    src/region/*_test.cc | *_bench.cc) ;;
    *) sources+=("$source") ;;
  esac
done
sources+=(/usr/src/googletest/googletest/src/gtest{-all,_main}.cc)

compile() {  # SOURCE OBJECT FLAGS...
  local flags=()
  grep -qxF "$1" <<< "$exact" && flags=(-ffp-contract=off)
  "${cxx[@]}" "${flags[@]}" "${@:3}" -c "$1" -o "$2"
}
in_parallel() {  # of as many processes as there are processors; fails if one does
  while (($(jobs -rp | wc -l) >= $(nproc))); do wait -n; done
}

linked=()
for source in "${sources[@]}"; do
  object=$objects/$(tr / _ <<< "$source").o
  linked+=("$object")
  [[ $object -nt $source && -z $(find src include -name '*.h' -newer "$object" -print -quit) ]] &&
    continue
  in_parallel
  compile "$source" "$object" &
done
while (($(jobs -rp | wc -l) > 0)); do wait -n; done

"${cxx[@]}" "${linked[@]}" "$root"/usr/lib/aarch64-linux-gnu/libhwy.so.1 -pthread \
  -o "$build/kernel_test"
qemu-aarch64 -L /usr/aarch64-linux-gnu -E LD_LIBRARY_PATH="$root/usr/lib/aarch64-linux-gnu" \
  "$build/kernel_test" --gtest_brief=1 "$@"

for source in src/numeric/*_kernel.cc src/compare/{,cells/}*_kernel.cc; do
  in_parallel
  compile "$source" "$objects/sve.$(basename "$source").o" -march=armv8.2-a+sve &
done
while (($(jobs -rp | wc -l) > 0)); do wait -n; done
echo "NEON: passed. SVE: compiles."
