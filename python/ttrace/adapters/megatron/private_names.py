"""What capture uses of megatron-core that megatron-core does not promise. Old versions lack some,
newer ones may: see docs/evidence/versions.md."""

from __future__ import annotations

from ttrace.capture.private_names import PrivateName

_CORE = "megatron.core."
_BUFFERS = _CORE + "distributed.param_and_grad_buffer"
MEGATRON = (
    PrivateName(
        _CORE + "pipeline_parallel.schedules", "get_forward_backward_func", "nothing is captured"
    ),
    PrivateName(
        _CORE + "pipeline_parallel.schedules",
        "forward_step",
        "what the schedule makes of a loss is not recorded",
    ),
    PrivateName(
        _BUFFERS,
        "_ParamAndGradBucketGroup.start_grad_sync",
        "gradients before reduction are not recorded",
    ),
    PrivateName(
        _CORE + "distributed.finalize_model_grads",
        "_flatten_dense_tensors",
        "it is not known whose gradients the last reductions move",
    ),
    PrivateName(
        _CORE + "tensor_parallel.random",
        "CheckpointFunction.forward",
        "recomputed forwards are not recorded",
    ),
    PrivateName(
        _CORE + "tensor_parallel.random",
        "CheckpointWithoutOutput._recompute",
        "outputs that are discarded and recomputed (selective recompute) are not recorded again",
    ),
    PrivateName(
        _CORE + "tensor_parallel.random",
        "CudaRNGStatesTracker.fork",
        "random numbers of parallel regions are taken for those of a module's own",
    ),
    PrivateName(
        _CORE + "transformer.moe.router",
        "TopKRouter.routing",
        "choices of experts that round-off turns cannot be told from wrong ones",
    ),
    PrivateName(_CORE + "optimizer", "get_megatron_optimizer", "the optimizer's step is not seen"),
    PrivateName(
        _CORE + "rerun_state_machine",
        "_GLOBAL_RERUN_STATE_MACHINE",
        "a repeated step counts as an iteration",
    ),
)
