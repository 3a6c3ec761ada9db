"""Process groups and random states of `train_gpt.py`."""

from __future__ import annotations

import argparse
import os
import random

import numpy
import torch
import torch.distributed as dist
from megatron.core import parallel_state, tensor_parallel
from megatron.core.tensor_parallel.random import initialize_rng_tracker


def initialize(args: argparse.Namespace) -> None:
    """A plain `python` start is a group of one process."""
    if "RANK" in os.environ:
        dist.init_process_group("gloo")
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    parallel_state.initialize_model_parallel(
        tensor_model_parallel_size=args.tp,
        pipeline_model_parallel_size=args.pp,
        virtual_pipeline_model_parallel_size=args.vpp if args.vpp > 1 else None,
        context_parallel_size=args.cp,
        expert_model_parallel_size=args.ep,
        expert_tensor_parallel_size=args.etp,
        create_gloo_process_groups=False,
    )
    # Stages draw different weights, as in Megatron-LM.
    seed = args.seed + 100 * parallel_state.get_pipeline_model_parallel_rank()
    random.seed(seed)
    numpy.random.seed(seed)
    torch.manual_seed(seed)
    if args.graph_safe_rng:
        initialize_rng_tracker(use_cudagraphable_rng=True)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)


def seed_dropout(args: argparse.Namespace) -> None:
    """Ranks that see other data drop other values. Not before the model is built: their weights
    must be equal. Megatron-LM leaves this out unless --data-parallel-random-init is given."""
    rank = parallel_state.get_data_parallel_rank(with_context_parallel=True)
    stage = parallel_state.get_pipeline_model_parallel_rank()
    seed = args.seed + 100 * stage + 10 * rank
    torch.manual_seed(seed)
    tensor_parallel.model_parallel_cuda_manual_seed(seed)
