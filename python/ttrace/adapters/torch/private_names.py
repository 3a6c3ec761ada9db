"""What capture uses of torch that torch does not promise."""

from __future__ import annotations

from ttrace.capture.private_names import PrivateName

_UNPLACED = "plain tensors that come from DTensors are not recorded"
# What says where a plain tensor lies in a model that is cut by DTensors.
PROVENANCE = (
    PrivateName(
        "torch.distributed.tensor._api", "_ToTorchTensor.forward", _UNPLACED, "dtensor_spec"
    ),
    PrivateName(
        "torch.distributed.tensor._api", "_ToTorchTensor.forward", _UNPLACED, "grad_placements"
    ),
)

_UNSEEN = "collectives of functional calls are not seen"
TORCH = (
    PrivateName(
        "torch.nn.utils.clip_grad",
        "_clip_grads_with_norm_",
        "reduced gradients are those after clipping",
    ),
    PrivateName("torch.nn.utils.clip_grad", "_get_total_norm", "the norm's order is taken to be 2"),
    PrivateName(
        "torch.utils.checkpoint",
        "_checkpoint_without_reentrant_generator",
        "backwards of checkpointed modules count as isolated, which they are not",
    ),
    PrivateName(
        "torch.utils.data.dataloader",
        "_BaseDataLoaderIter",
        "what a DataLoader hands out is not seen: the model's own inputs are the data",
    ),
    PrivateName(
        "torch.nn", "Module._compiled_call_impl", "modules that were compiled in place are not seen"
    ),
    PrivateName(
        "torch",
        "Tensor._backward_hooks",
        "local gradients are those that the loop's own hooks of parameters have left",
    ),
    PrivateName("torch", "Tensor._base", "gradients of inputs that a module changes are not seen"),
    PrivateName(
        "torch.autograd.graph",
        "Node._sequence_nr",
        "edges into a module's inputs are looked for in the whole graph",
    ),
    PrivateName(
        "torch.amp",
        "GradScaler.__init__",
        "whether gradients carry the loss scale is not known",
        attribute="_per_optimizer_states",
    ),
    *(
        PrivateName(
            "torch.optim.optimizer",
            f"_global_optimizer_{when}_hooks",
            "what watches all steps of the process is told of those in reruns, too",
        )
        for when in ("pre", "post")
    ),
    PrivateName(
        "torch",
        "_C._current_graph_task_id",
        "collectives of a backward are not told from others, nor are its losses",
    ),
    PrivateName(
        "torch",
        "_C._current_autograd_node",
        "what a communication hook sends is not told from what the model's own backward does",
    ),
    PrivateName(
        "torch.distributed.distributed_c10d", "_get_default_group", "no collective is seen"
    ),
    PrivateName(
        "torch.distributed.distributed_c10d",
        "_get_default_store",
        "ranks cannot agree on reruns, and none is made",
    ),
    PrivateName("torch.distributed.distributed_c10d", "_resolve_process_group", _UNSEEN),
    PrivateName(
        "torch.nn.parallel.distributed",
        "DistributedDataParallel._get_ddp_logging_data",
        "communication hooks of DistributedDataParallel are not known",
    ),
    PrivateName("torch.distributed._functional_collectives", "_resolve_group_name", _UNSEEN),
    *PROVENANCE,
    PrivateName("torch.distributed.tensor", "DTensor._local_tensor", "no DTensor is recorded"),
    PrivateName(
        "torch.distributed.tensor.placement_types",
        "_MaskPartial._reduce_value",
        "an embedding that is cut by rows shows values for other ranks' tokens",
        "mask_buffer",
    ),
    PrivateName(
        "torch.distributed.tensor._ops._mask_buffer",
        "MaskBuffer.apply_mask",
        "the output of an embedding that is cut by rows is not recorded",
    ),
    PrivateName(
        "torch.distributed.tensor.placement_types",
        "_StridedShard.split_factor",
        "what two mesh dimensions cut along one dimension is taken for cut in their order",
    ),
)
