"""No wrapper: the loop reduces gradients itself, in one of the ways in which people do, after
accumulating two micro-batches. --bug plants what such loops get wrong."""

import argparse
import time

import torch
import torch.distributed as dist
from ranks import end, part, start
from token_model import TokenModel, loss_of, rows
from torch._utils import _flatten_dense_tensors, _unflatten_dense_tensors

import ttrace

MICRO_BATCHES = 2


def one_by_one(gradients):
    for gradient in gradients:
        dist.all_reduce(gradient)
        gradient /= ranks


def flattened(gradients):
    flat = _flatten_dense_tensors(gradients)
    dist.all_reduce(flat)
    flat /= ranks
    for gradient, mean in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
        gradient.copy_(mean)


def joined(gradients):
    """Divided before the reduction."""
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]) / ranks
    dist.all_reduce(flat)
    begin = 0
    for gradient in gradients:
        gradient.copy_(flat[begin : begin + gradient.numel()].view_as(gradient))
        begin += gradient.numel()


def coalesced(gradients):
    with dist.distributed_c10d._coalescing_manager():
        for gradient in gradients:
            dist.all_reduce(gradient)
    torch._foreach_div_(gradients, ranks)


def without_waiting(gradients):
    """All at once, and each is waited for."""
    for handle in [dist.all_reduce(gradient, async_op=True) for gradient in gradients]:
        handle.wait()
    torch._foreach_div_(gradients, ranks)


def in_bfloat16(gradients):
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients]).bfloat16()
    dist.all_reduce(flat.div_(ranks))
    for gradient, mean in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
        gradient.copy_(mean)


def in_parts(gradients):
    """Each rank sums a part, and all get all parts."""
    flat = torch.cat([gradient.reshape(-1) for gradient in gradients])
    flat = torch.cat([flat, flat.new_zeros(-flat.numel() % ranks)])
    mine = flat.new_empty(flat.numel() // ranks)
    dist.reduce_scatter_tensor(mine, flat)
    dist.all_gather_into_tensor(flat, mine / ranks)
    for gradient, mean in zip(gradients, _unflatten_dense_tensors(flat, gradients), strict=True):
        gradient.copy_(mean)


def summed(gradients):
    """The loss was divided instead."""
    dist.all_reduce_coalesced(gradients)


def too_early_copied(gradients):
    """What was sent is read before it has arrived."""
    sent = _flatten_dense_tensors(gradients)
    time.sleep(0.3 * rank)  # the others cannot have it yet
    handle = dist.all_reduce(sent, async_op=True)
    means = [mean / ranks for mean in _unflatten_dense_tensors(sent, gradients)]
    for gradient, mean in zip(gradients, means, strict=True):
        gradient.copy_(mean)
    handle.wait()


def reduced_in_hook(gradient):
    gradient = gradient / ranks
    dist.all_reduce(gradient)
    return gradient


AFTER = {
    "one": one_by_one,
    "flat": flattened,
    "joined": joined,
    "coalesced": coalesced,
    "async": without_waiting,
    "bfloat16": in_bfloat16,
    "parts": in_parts,
    "summed": summed,
}

parser = argparse.ArgumentParser()
parser.add_argument("how", choices=(*AFTER, "hook", "accumulated", "each"))
parser.add_argument("--bug", choices=("missing", "sum", "early", "stale", "group", "rank", "never"))
options = parser.parse_args()
rank, ranks = start()
model = TokenModel()
own = dist.new_group([rank], use_local_synchronization=True) if options.bug == "group" else None
odd = model.layers[1].down.weight


def reduce_gradients():
    if ranks == 1 or options.how in ("hook", "accumulated") or options.bug == "never":
        return
    parameters = [p for p in model.parameters() if options.bug != "missing" or p is not odd]
    gradients = [p.grad for p in parameters]
    if options.bug == "rank" and rank == 1:
        gradients = [p.grad.clone() if p is odd else p.grad for p in parameters]
    if options.bug == "sum":
        dist.all_reduce_coalesced(gradients)
    elif options.bug == "stale":
        too_early_copied(gradients)
    elif options.bug == "group":
        AFTER[options.how]([p.grad for p in parameters if p is not odd])
        dist.all_reduce(odd.grad, group=own)
        odd.grad /= ranks
    else:
        AFTER.get(options.how, one_by_one)(gradients)


if ranks > 1 and options.how == "hook":
    for parameter in model.parameters():
        parameter.register_hook(reduced_in_hook)
if ranks > 1 and options.how == "accumulated":
    last = False

    def reduce(parameter):
        if last != (options.bug == "early"):
            dist.all_reduce(parameter.grad)
            parameter.grad /= ranks

    for parameter in model.parameters():
        parameter.register_post_accumulate_grad_hook(reduce)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
ttrace.attach(model, optimizer)
for step in range(3):
    for micro_batch in range(MICRO_BATCHES):
        last = micro_batch == MICRO_BATCHES - 1
        first = 4 * (MICRO_BATCHES * step + micro_batch)
        loss = loss_of(model, part(rows(first, 4), rank, ranks)) / MICRO_BATCHES
        (loss / ranks if options.how == "summed" else loss).backward()
        if options.how == "each" or (options.bug == "early" and not last):
            reduce_gradients()
    if options.how != "each" and options.bug != "early":
        reduce_gradients()
    optimizer.step()
    optimizer.zero_grad()
end()
