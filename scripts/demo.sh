#!/usr/bin/env bash
# Finds a real bug from nothing: a small GPT on megatron-core, trained on one
# process (the reference) and on two with tensor and sequence parallelism in
# which the layernorm gradients are not reduced (the candidate). Succeeds if and
# only if ttrace finds a divergence and names what was broken.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

bug=t11_sp_layernorm_not_reduced
output=demo-report
bin=.venv/bin
export PATH="$PWD/$bin:$PATH"

launch="torchrun --standalone --nproc-per-node"
reference="$launch 1 zoo/train_gpt.py --bf16"
candidate="$launch 2 zoo/train_gpt.py --bf16 --tp 2 --sp --bug $bug"
echo "\$ ttrace diff -o $output \\"
echo "    --reference \"$reference\" \\"
echo "    --candidate \"$candidate\""

code=0
$bin/ttrace diff --force -o $output \
  --reference "$reference" --candidate "$candidate" || code=$?
echo
$bin/python scripts/check_demo.py $output/result.json $bug $code
