"""How close torch's own optimizer kernels come to the bound of a replayed step.

    python bench/step_rounding.py [--ttrace COMMAND] [--elements N] [--steps N]

Steps of Adam, AdamW and SGD, as a loop, foreach and fused, on parameters in float32 and bfloat16
are written as traces and checked without a reference. Prints the largest headroom of each; 1 is
the bound. Gradients range over 1e-20 to 1e2, with zeros among them.
"""

import argparse
import json
import subprocess
import tempfile
from pathlib import Path

import torch

from ttrace import _native

STATE = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq", "momentum_buffer", "step")


class Trace:
    """One process, one parameter."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        (folder / "manifest.json").write_text('{"format": "ttrace", "version": 1, "run_id": ""}')
        self.writer = _native.Writer(str(folder), 0, 1, [("tp", 1)], [0])

    def put(self, role: str, arg: str, tensor: torch.Tensor, step: int, pass_: str) -> None:
        tensor = tensor.detach().contiguous()
        dtype = str(tensor.dtype).removeprefix("torch.")
        spec = self.writer.spec("w", role, arg, dtype, list(tensor.shape))
        self.writer.append(
            spec, "real", step, 0, pass_, -1, 0, tensor.data_ptr(), list(tensor.stride())
        )


def gradients(elements: int, dtype: torch.dtype, step: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(step)
    size = 10 ** (torch.rand(elements, generator=generator) * 22 - 20)
    ordinary = torch.rand(elements, generator=generator) < 0.7
    size = torch.where(ordinary, torch.tensor(1e-3), size)
    values = size * torch.randn(elements, generator=generator)
    values[torch.rand(elements, generator=generator) < 0.05] = 0
    return values.to(dtype)


def record(folder: Path, optimizer_class, options, dtype, elements: int, steps: int) -> None:
    trace = Trace(folder)
    torch.manual_seed(0)
    parameter = torch.nn.Parameter((torch.randn(elements) * 0.1).to(dtype))
    optimizer = optimizer_class([parameter], **options)
    kind = "SGD" if optimizer_class is torch.optim.SGD else "Adam"
    trace.put("param", "", parameter, 0, "forward")
    for step in range(steps):
        parameter.grad = gradients(elements, dtype, step)
        values = {k: v for k, v in optimizer.param_groups[0].items() if k != "params"}
        note = {"iteration": step, "kind": kind, "values": values, "parameters": ["w"]}
        trace.writer.note("optimizer_group", json.dumps(note))
        trace.put("grad_reduced", "", parameter.grad, step, "backward")
        put_state(trace, optimizer.state[parameter], step, "forward")
        optimizer.step()
        put_state(trace, optimizer.state[parameter], step, "optimizer")
        trace.put("param_updated", "", parameter, step, "optimizer")
        trace.writer.seal(step, "real")
    trace.writer.close(True, "")


def put_state(trace: Trace, state, step: int, pass_: str) -> None:
    for name in STATE:
        if state.get(name) is not None:
            trace.put("optim_state", name, state[name], step, pass_)


def headrooms(command: str, folder: Path) -> dict[str, float]:
    out = folder.with_suffix(".out")
    subprocess.run(
        [command, "check", str(folder), "-o", str(out)], capture_output=True, check=False
    )
    result = json.loads((out / "result.json").read_text())
    found: dict[str, float] = {}
    for tensor in result["tensors"]:
        for leg in tensor["legs"]:
            for test in leg["tests"]:
                if test["statistic"] == "step":
                    name = tensor["arg"] or "parameter"
                    found[name] = max(found.get(name, 0.0), float(test["headroom"]))
    return found


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--ttrace", default="ttrace")
    parser.add_argument("--elements", type=int, default=200_000)
    parser.add_argument("--steps", type=int, default=5)
    arguments = parser.parse_args()
    kinds = [
        (torch.optim.Adam, {"lr": 1e-3}),
        (torch.optim.Adam, {"lr": 1e-3, "weight_decay": 0.1, "amsgrad": True}),
        (torch.optim.AdamW, {"lr": 1e-2, "weight_decay": 0.1}),
        (torch.optim.AdamW, {"lr": 1e-2, "betas": (0.9, 0.95), "maximize": True}),
        (torch.optim.SGD, {"lr": 0.1}),
        (torch.optim.SGD, {"lr": 0.1, "momentum": 0.9, "weight_decay": 0.01, "nesterov": True}),
    ]
    ways = [{"foreach": False}, {"foreach": True}, {"fused": True}]
    with tempfile.TemporaryDirectory() as scratch:
        number = 0
        for dtype in (torch.float32, torch.bfloat16):
            for optimizer_class, options in kinds:
                for way in ways:
                    number += 1
                    folder = Path(scratch) / str(number)
                    size = (arguments.elements, arguments.steps)
                    record(folder, optimizer_class, {**options, **way}, dtype, *size)
                    found = headrooms(arguments.ttrace, folder)
                    words = " ".join(f"{k} {v:.2f}" for k, v in sorted(found.items()))
                    name = optimizer_class.__name__
                    print(f"{str(dtype)[6:]} {name} {options} {way}: {words}", flush=True)


if __name__ == "__main__":
    main()
