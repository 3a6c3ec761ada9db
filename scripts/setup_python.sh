#!/usr/bin/env bash
# Makes .venv at the project's root with everything that tests and demo need,
# and installs the project into it. What is up to date is not touched.
#
#   scripts/setup_python.sh          packages and the project
#   scripts/setup_python.sh --deps   packages only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
python=$venv/bin/python
log=$(mktemp)
trap 'rm -f "$log"' EXIT

# Runs a command silently; on failure shows the end of what it said.
quietly() {
  if ! "$@" > "$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "setup: failed: $*" >&2
    exit 1
  fi
}

install_packages() {
  local stamp=$venv/.requirements
  if [[ -x $python ]] && cmp -s requirements-dev.txt "$stamp"; then
    return
  fi
  if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: python3 is $(python3 --version 2>&1); 3.11 or newer is needed." >&2
    exit 1
  fi
  if [[ ! -x $python ]]; then
    echo "setup: creating $venv"
    quietly python3 -m venv "$venv"
  fi
  echo "setup: installing Python packages (torch first; a few minutes)"
  # torch on its own, so that no other package's wish chooses its version.
  quietly "$python" -m pip install "$(grep '^torch==' requirements-dev.txt)"
  quietly "$python" -m pip install -r requirements-dev.txt
  cp requirements-dev.txt "$stamp"
}

# A digest of everything that the wheel is made from.
project_digest() {
  {
    find CMakeLists.txt pyproject.toml cmake include src python -type f \
      ! -name '*_test.cc' ! -name '*_bench.cc' ! -name '*.pyc' \
      ! -path 'python/tests/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    "$python" --version
  } | sha256sum
}

install_project() {
  local stamp=$venv/.project digest
  digest=$(project_digest)
  if [[ -x $venv/bin/ttrace && $(cat "$stamp" 2> /dev/null) == "$digest" ]]; then
    return
  fi
  echo "setup: building and installing ttrace"
  rm -f "$stamp"
  # Without isolation: the tools are in .venv already, nothing is downloaded,
  # and build/wheel can be reused because their paths stay the same.
  CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
    quietly "$python" -m pip install --no-build-isolation --no-deps \
    --force-reinstall --no-index .
  echo "$digest" > "$stamp"
}

install_packages
if [[ ${1:-} != --deps ]]; then
  install_project
fi
