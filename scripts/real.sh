#!/usr/bin/env bash
# Megatron-LM's own pretrain_gpt.py, clean and with bugs: docs/evidence/real.md. The
# checkout is the user's: of the version of megatron-core in requirements-demo.txt
# (git tag core_v0.16.1). Nothing is written into it.
#
#   scripts/real.sh MEGATRON_LM [ARGUMENTS OF scripts/real.py...]
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
if [[ ! -f ${1:-}/pretrain_gpt.py ]]; then
  echo 'usage: make real MEGATRON_LM=PATH   (a checkout of Megatron-LM, tag core_v0.16.1)' >&2
  exit 2
fi
python=.venv/bin/python
stamp=.venv/.requirements-real
if ! cmp -s requirements-real.txt "$stamp"; then
  echo "setup: installing the libraries of requirements-real.txt"
  "$python" -m pip install --quiet -r requirements-real.txt
  cp requirements-real.txt "$stamp"
fi
exec "$python" scripts/real.py --megatron-lm "$@"
