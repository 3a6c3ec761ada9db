#!/usr/bin/env bash
# Installs the Debian packages that are needed, and only those missing. Tested on
# Debian 12. On another system install their like by hand and set
# TTRACE_SKIP_SYSTEM_SETUP=1.
#
#   scripts/setup_system.sh [PACKAGE...]          for tests and checks, and these
#   scripts/setup_system.sh --build [PACKAGE...]  only what the build needs
set -euo pipefail

packages=(
  g++ cmake ninja-build
  libhwy-dev libsimdjson-dev nlohmann-json3-dev libcli11-dev libfmt-dev
  libtbb-dev libxxhash-dev libtomlplusplus-dev
)
if [[ ${1:-} == --build ]]; then
  shift
else
  packages+=(
    clang-14 libclang-rt-14-dev clang-format-14 clang-tidy-14 ccache
    libgtest-dev libgmock-dev libbenchmark-dev
  )
fi
packages+=("$@")

# A Python of one's own (pyenv, conda) brings venv and headers with it; Debian
# keeps them in packages of their own.
python_is_complete() {
  python3 - <<'PY' 2>/dev/null
import ensurepip, os, sysconfig, venv
raise SystemExit(not os.path.exists(sysconfig.get_path("include") + "/Python.h"))
PY
}
python_is_complete || packages+=(python3 python3-venv python3-dev)

if [[ ${TTRACE_SKIP_SYSTEM_SETUP:-} == 1 ]]; then
  exit 0
fi
if ! command -v dpkg-query > /dev/null; then
  echo "setup: this is not a Debian system. Install what these packages hold:" >&2
  echo "  ${packages[*]}" >&2
  echo "and run again with TTRACE_SKIP_SYSTEM_SETUP=1." >&2
  exit 1
fi

missing=()
for package in "${packages[@]}"; do
  state=$(dpkg-query -W -f '${db:Status-Status}' "$package" 2> /dev/null || true)
  [[ $state == installed ]] || missing+=("$package")
done
if ((${#missing[@]} == 0)); then
  exit 0
fi

as_root=()
if ((EUID != 0)); then
  if ! command -v sudo > /dev/null; then
    echo "setup: these Debian packages are missing, and installing them needs root:" >&2
    echo "  apt-get install ${missing[*]}" >&2
    exit 1
  fi
  as_root=(sudo)
fi

echo "setup: installing Debian packages: ${missing[*]}"
log=$(mktemp)
trap 'rm -f "$log"' EXIT
if ! {
  "${as_root[@]}" apt-get update &&
    "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install \
      --yes --no-install-recommends "${missing[@]}"
} > "$log" 2>&1; then
  tail -n 30 "$log" >&2
  echo "setup: apt-get failed; its last lines are above." >&2
  exit 1
fi
