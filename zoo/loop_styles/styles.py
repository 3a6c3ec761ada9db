"""One model, trained in the ways in which people write an iteration: twelve steps of the style that
is named.

    python zoo/loop_styles/styles.py STYLE
    torchrun --nproc-per-node 2 zoo/loop_styles/styles.py STYLE [--bug]
"""

from __future__ import annotations

import argparse
import contextlib
import types
from collections.abc import Callable

import in_turn
import numpy
import torch
import torch.distributed as dist
import two_roots
from loop import LENGTH, RANK, RANKS, ROWS, STEPS, VOCABULARY, WIDTH, Loop, Model, batches, loss_of
from torch import nn

import ttrace


class HalfHead(Model):
    """Of two precisions, one of which is written down in its forward."""

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = block(hidden)
        return self.head(hidden.to(torch.bfloat16)).float()


class Accumulated(Loop):
    count = 3

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        for k, tokens in enumerate(batches(step, self.count)):
            last = k == self.count - 1
            waits = RANKS > 1 and not last
            with self.model.no_sync() if waits else contextlib.nullcontext():
                loss = loss_of(self.model(tokens[:, :-1]), tokens)
                (loss if self.bug and last else loss / self.count).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)


class ClippedBetween(Loop):
    """Gradients are clipped after each micro-batch, and added to."""

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        for tokens in batches(step, 2):
            self.backward(tokens)
            nn.utils.clip_grad_norm_(self.model.parameters(), 0.1)
        optimizer.step()
        optimizer.zero_grad()


class SeveralForwards(Loop):
    def backward(self, tokens: torch.Tensor) -> None:
        first, second = self.model(tokens[:, :-1]), self.model(tokens[:, 1:])
        distance = (first.mean(1) - second.mean(1)).square().sum(-1).mean()
        (loss_of(first, tokens) + (0.5 if self.bug else 0.1) * distance).backward()


class SeveralBackwards(Loop):
    def backward(self, tokens: torch.Tensor) -> None:
        context = self.model.no_sync() if RANKS > 1 else contextlib.nullcontext()
        scores = self.model(tokens[:, :-1])
        with context:
            loss_of(scores, tokens).backward(retain_graph=True)
        again = self.model(tokens[:, :-1])
        (0.1 * torch.logsumexp(again, -1).square().mean()).backward()


class SeveralLosses(Loop):
    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1])
        losses = [loss_of(scores, tokens), 0.01 * self.inner.penalty]
        torch.autograd.backward(losses)


class InPlace(Loop):
    """A masked loss, made in place, of a total that begins with zero."""

    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1]).float().log_softmax(-1)
        each = -scores.gather(-1, tokens[:, 1:, None]).squeeze(-1)
        mask = tokens[:, 1:] != 3
        each[~mask] = 0.0
        total = torch.zeros(())
        total += each.sum() / (mask.sum() if not self.bug else mask.numel())
        total.mul_(0.5)
        total += 1e-4 * sum(p.square().sum() for p in self.inner.head.parameters())
        total.backward()


class Item(Loop):
    """A number of the loss's own size is a weight of it."""

    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1])
        loss = loss_of(scores, tokens)
        (loss / loss.item()).backward()


class Autocast(Loop):
    """The bug is smaller than what bfloat16 can show."""

    def backward(self, tokens: torch.Tensor) -> None:
        with torch.autocast("cpu", torch.bfloat16):
            scores = self.model(tokens[:, :-1]) * (1.001 if self.bug else 1.0)
            more = self.model(tokens[:, :-1])
            loss = loss_of(scores, tokens) + 0.1 * more.float().square().mean()
        loss.backward()


class Mixed(Loop):
    def made(self) -> nn.Module:
        model = HalfHead()
        model.head.to(torch.bfloat16)
        return model


class Scaled(Loop):
    def wrapped(self) -> None:
        self.scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        for tokens in batches(step):
            with torch.autocast("cpu", torch.float16):
                loss = loss_of(self.model(tokens[:, :-1]), tokens)
            self.scaler.scale(loss).backward()
        self.scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()


class PartlyScaled(Scaled):
    """The loss of the first of two micro-batches is not scaled."""

    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers
        for number, tokens in enumerate(batches(step, 2)):
            with torch.autocast("cpu", torch.float16):
                loss = loss_of(self.model(tokens[:, :-1]), tokens)
            (self.scaler.scale(loss) if number else loss).backward()
        self.scaler.step(optimizer)
        self.scaler.update()
        optimizer.zero_grad()


class Reentrant(Loop):
    recompute = True
    parallel = types.MappingProxyType({"static_graph": True})


class Recomputed(Loop):
    recompute = False


class Buckets(Loop):
    parallel = types.MappingProxyType({"bucket_cap_mb": 0.001, "gradient_as_bucket_view": True})


class Joined(Loop):
    """The last rank has two iterations fewer."""

    def step(self, step: int) -> None:
        if step > 0:
            return
        with self.model.join() if RANKS > 1 else contextlib.nullcontext():
            for k in range(4 - 2 * (RANKS > 1 and RANK == RANKS - 1)):
                super().step(k)


class Static(Loop):
    parallel = types.MappingProxyType({"static_graph": True})


class Unused(Loop):
    unused = True
    parallel = types.MappingProxyType({"find_unused_parameters": True})


class Branches(Loop):
    """Each rank's rows need a part of the model that other ranks do not."""

    parallel = types.MappingProxyType({"find_unused_parameters": True})

    def made(self) -> nn.Module:
        return Branching()


class Branching(Model):
    def __init__(self) -> None:
        super().__init__()
        self.narrow, self.wide = nn.Linear(WIDTH, 4), nn.Linear(WIDTH, 3 * WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        scores = super().forward(tokens)
        part = self.wide if RANK % 2 else self.narrow
        return scores + part(self.embedding(tokens)).mean(-1, keepdim=True)


class Compressed(Loop):
    def wrapped(self) -> None:
        if RANKS > 1:
            from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power

            state = power.PowerSGDState(None, 1, start_powerSGD_iter=2, min_compression_rate=0.5)
            self.model.register_comm_hook(state, power.powerSGD_hook)


class Compiled(Loop):
    def wrapped(self) -> None:
        self.model = torch.compile(self.model, backend="aot_eager")


class CompiledLoss(Loop):
    def wrapped(self) -> None:
        self.loss = torch.compile(loss_of, backend="aot_eager")

    def backward(self, tokens: torch.Tensor) -> None:
        self.loss(self.model(tokens[:, :-1]), tokens).backward()


class Hooks(Loop):
    """The user's own: on a module, on an output, on a parameter."""

    def wrapped(self) -> None:
        self.inner.blocks[0].register_forward_hook(lambda module, given, made: made * 1.5)
        self.inner.head.weight.register_hook(lambda gradient: gradient * 0.5)

    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1])
        scores.register_hook(lambda gradient: gradient.clamp(-1e-3, 1e-3))
        loss_of(scores, tokens).backward()


class Counting(Loop):
    """A forward that draws from a generator of its own, and counts, in an object of its own."""

    def made(self) -> nn.Module:
        model = Model()
        model.blocks[0].register_module("drawn", Drawn())
        model.blocks[0].norm = nn.Sequential(model.blocks[0].norm, model.blocks[0].drawn)
        return model


class Drawn(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.draws = numpy.random.RandomState(RANK)
        self.seen = types.SimpleNamespace(calls=0)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        self.seen.calls += 1
        return hidden * (1 + 0.1 * self.draws.rand() + 0.01 * self.seen.calls)


class Smoothed(Loop):
    """A gradient's mean over iterations, in a hook."""

    def wrapped(self) -> None:
        mean: torch.Tensor | None = None

        def smooth(gradient: torch.Tensor) -> torch.Tensor:
            nonlocal mean
            mean = gradient if mean is None else 0.9 * mean + 0.1 * gradient
            return gradient + mean

        self.inner.head.weight.register_hook(smooth)


class Normalised(Loop):
    """Running statistics are the first rank's, of its own rows."""

    def made(self) -> nn.Module:
        model = Model()
        model.blocks[0].norm = OverBatch()
        return model


class OverBatch(nn.BatchNorm1d):
    def __init__(self) -> None:
        super().__init__(WIDTH)

    def forward(self, hidden: torch.Tensor) -> torch.Tensor:
        return super().forward(hidden.transpose(1, 2)).transpose(1, 2)


class Bounded(Loop):
    """Rows of the embedding are kept within a norm, by each forward that needs them."""

    def made(self) -> nn.Module:
        model = Model()
        model.embedding.max_norm = 1.0
        return model


class Late(Loop):
    """Not like the first iteration: the others shrink a parameter before the step."""

    def step(self, step: int) -> None:
        super().step(step)
        self.inner.late = True

    def backward(self, tokens: torch.Tensor) -> None:
        super().backward(tokens)
        if hasattr(self.inner, "late"):
            self.inner.head.bias.data.mul_(0.99)


class Halved(Loop):
    """Gradients are changed where no call of torch shows it."""

    def backward(self, tokens: torch.Tensor) -> None:
        super().backward(tokens)
        for parameter in self.inner.head.parameters():
            if parameter.grad is not None:
                parameter.grad.numpy()[...] *= 0.5


class Gathered(Loop):
    """A loss over what all ranks have put out."""

    def backward(self, tokens: torch.Tensor) -> None:
        pooled = self.model(tokens[:, :-1]).mean(1)
        if RANKS > 1:
            from torch.distributed.nn.functional import all_gather

            pooled = torch.stack(all_gather(pooled), 1).flatten(0, 1)
        pairs = pooled @ pooled.T
        loss = nn.functional.cross_entropy(pairs, torch.arange(len(pairs)))
        count = torch.tensor(1.0)
        if RANKS > 1:
            dist.all_reduce(count)
        (loss / count * RANKS).backward()


class Weighted(Loop):
    """The mean over the tokens of all ranks, by a collective on what depends on the model."""

    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1])
        each = nn.functional.cross_entropy(scores.transpose(1, 2), tokens[:, 1:], reduction="none")
        weight = (-each.detach()).exp()
        total = weight.sum()
        if RANKS > 1:
            work = dist.all_reduce(total, async_op=True)
            work.wait()
        ((each * weight).sum() / total * RANKS).backward()


class Slope(Loop):
    """A penalty on gradients, which the loop asks autograd for."""

    def backward(self, tokens: torch.Tensor) -> None:
        scores = self.model(tokens[:, :-1])
        loss = loss_of(scores, tokens)
        (slope,) = torch.autograd.grad(loss, scores, create_graph=True)
        (loss + slope.square().sum()).backward()


class Closure(Loop):
    def step(self, step: int) -> None:
        (optimizer,) = self.optimizers

        def closure() -> float:
            optimizer.zero_grad()
            for tokens in batches(step):
                self.backward(tokens)
            return 0.0

        optimizer.step(closure)


class ParallelLoss(Loop):
    """Tensor-parallel by DTensor, with a loss over scores that are cut along the vocabulary."""

    def __init__(self, bug: bool) -> None:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.tensor import Shard
        from torch.distributed.tensor.parallel import (
            ColwiseParallel,
            RowwiseParallel,
            parallelize_module,
        )

        self.bug = bug
        torch.manual_seed(1)
        self.model = self.made()
        self.mesh = init_device_mesh("cpu", (RANKS,), mesh_dim_names=("tp",)) if RANKS > 1 else None
        if self.mesh is not None:
            plan: dict[str, object] = {
                "head": ColwiseParallel(output_layouts=Shard(-1), use_local_output=False)
            }
            for k in range(2):
                plan[f"blocks.{k}.up"] = ColwiseParallel()
                plan[f"blocks.{k}.down"] = RowwiseParallel()
            parallelize_module(self.model, self.mesh, plan)
        self.optimizers = self.make_optimizers()
        ttrace.attach(self.model, self.optimizers)

    def step(self, step: int) -> None:
        from torch.distributed.tensor.parallel import loss_parallel

        (optimizer,) = self.optimizers
        generator = torch.Generator().manual_seed(step)
        tokens = torch.randint(VOCABULARY, (ROWS, LENGTH + 1), generator=generator)
        with loss_parallel() if self.mesh is not None else contextlib.nullcontext():
            loss_of(self.model(tokens[:, :-1]), tokens).backward()
        optimizer.step()
        optimizer.zero_grad()


STYLES: dict[str, Callable[[bool], Loop]] = {
    "plain": Loop,
    "accumulated": Accumulated,
    "clipped-between": ClippedBetween,
    "several-forwards": SeveralForwards,
    "several-backwards": SeveralBackwards,
    "several-losses": SeveralLosses,
    "in-place": InPlace,
    "item": Item,
    "autocast": Autocast,
    "mixed": Mixed,
    "scaled": Scaled,
    "partly-scaled": PartlyScaled,
    "reentrant": Reentrant,
    "recomputed": Recomputed,
    "buckets": Buckets,
    "static": Static,
    "joined": Joined,
    "unused": Unused,
    "branches": Branches,
    "compressed": Compressed,
    "compiled": Compiled,
    "compiled-loss": CompiledLoss,
    "hooks": Hooks,
    "counting": Counting,
    "smoothed": Smoothed,
    "normalised": Normalised,
    "bounded": Bounded,
    "late": Late,
    "halved": Halved,
    "gathered": Gathered,
    "weighted": Weighted,
    "slope": Slope,
    "closure": Closure,
    "parallel-loss": ParallelLoss,
    **in_turn.STYLES,
    **two_roots.STYLES,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("style", choices=STYLES)
    parser.add_argument("--bug", action="store_true")
    options = parser.parse_args()
    if RANKS > 1:
        dist.init_process_group("gloo")
    loop = STYLES[options.style](options.bug)
    for step in range(STEPS):
        loop.step(step)
    if RANKS > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
