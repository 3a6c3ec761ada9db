"""Runs a loop in float64 without capture, to hold runs of one and of several ranks against each
other: only loops that agree there are honest.

The ranks are copies of a process that has imported torch once, as tests/launch_ranks.py makes them.
What is compared are the parameters of every optimizer that the script made, in the order in which
it handed them over, and the line of losses that it printed, if any.
"""

from __future__ import annotations

import ast
import contextlib
import io
import json
import os
import runpy
import sys
import tempfile
import traceback
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests"))
from ttrace.ranks.processes import free_port  # noqa: E402

# Sums of a few thousand terms in another order move float64 by 1e-13 of their size; a loop that
# computes something else moves by far more than this in a step.
LARGEST_DIFFERENCE = 1e-9


@dataclass(frozen=True)
class Agreement:
    """How far two runs lie apart, relative to each tensor's largest value, or why unknown."""

    difference: float
    problem: str = ""

    @property
    def holds(self) -> bool:
        return not self.problem and self.difference <= LARGEST_DIFFERENCE


def compare(first: tuple[int, list[str]], second: tuple[int, list[str]]) -> Agreement:
    """Two runs, each as its number of ranks and the words of its command."""
    import torch
    import torch._dynamo  # a first step of any optimizer imports it: seconds, in each rank
    import torch.distributed.tensor.parallel

    for _, words in (first, second):
        _import_what_it_imports(Path(words[0]))
    with tempfile.TemporaryDirectory(prefix="ttrace-float64-") as name:
        results = []
        for number, (ranks, words) in enumerate((first, second)):
            folder = Path(name) / str(number)
            folder.mkdir()
            problem = _run(ranks, words, folder)
            if problem:
                return Agreement(float("inf"), problem)
            results.extend(
                torch.load(folder / str(rank), weights_only=True) for rank in range(ranks)
            )
    reference = results[0]
    if not reference["parameters"]:
        return Agreement(float("inf"), "no optimizer was made")
    worst = 0.0
    for other in results[1:]:
        if len(other["parameters"]) != len(reference["parameters"]):
            return Agreement(float("inf"), "other parameters")
        for a, b in zip(reference["parameters"], other["parameters"], strict=True):
            if a.shape != b.shape or a.dtype != torch.float64:
                return Agreement(float("inf"), f"{a.dtype} {tuple(a.shape)}, {tuple(b.shape)}")
            worst = max(worst, _relative(a, b))
        if other["losses"] is not None and reference["losses"] is not None:
            worst = max(worst, _relative(reference["losses"], other["losses"]))
    moved = max((_relative(a, b) for a, b in zip(*_both(reference), strict=True)), default=0.0)
    if moved < 1e-6:
        return Agreement(worst, "no parameter moved")
    return Agreement(worst)


def _import_what_it_imports(script: Path) -> None:
    """Here, once, and not in each rank; but for what lies beside the script."""
    for node in ast.parse(script.read_text()).body:
        if not isinstance(node, ast.Import | ast.ImportFrom):
            continue
        beside = script.parent / f"{getattr(node, 'module', '')}.py"
        if beside.exists():
            _import_what_it_imports(beside)
            continue
        # One that is not there fails in the rank that needs it, with its own words.
        with contextlib.suppress(Exception):
            exec(compile(ast.Module([node], []), str(script), "exec"), {})


def _both(result: dict) -> tuple[list, list]:
    return result["parameters"], result["before"]


def _relative(a, b) -> float:
    size = max(a.abs().max().item(), b.abs().max().item()) if a.numel() else 0.0
    difference = (a - b).abs().max().item() if size else 0.0
    return difference / size if size else 0.0


def _run(ranks: int, words: list[str], folder: Path) -> str:
    """Runs it; what went wrong, or nothing."""
    port = free_port()
    children = []
    for rank in range(ranks):
        sys.stdout.flush()
        child = os.fork()
        if child == 0:
            os.environ |= {
                "RANK": str(rank),
                "LOCAL_RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "LOCAL_WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            os._exit(_as_rank(rank, words, folder))
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        said = [folder / f"{rank}.error" for rank in range(ranks)]
        return next((path.read_text() for path in said if path.exists()), f"exit {max(codes)}")
    return ""


def _as_rank(rank: int, words: list[str], folder: Path) -> int:
    import torch
    import torch.distributed as dist

    import ttrace

    torch.set_default_dtype(torch.float64)
    torch.set_num_threads(1)
    optimizers: list[torch.optim.Optimizer] = []
    before: list[torch.Tensor] = []

    def whole(tensor: torch.Tensor) -> torch.Tensor:
        tensor = tensor.detach()
        return (tensor.full_tensor() if hasattr(tensor, "full_tensor") else tensor).clone()

    make = torch.optim.Optimizer.__init__

    def make_and_remember(self, parameters, defaults):
        make(self, parameters, defaults)
        optimizers.append(self)
        before.extend(whole(p) for group in self.param_groups for p in group["params"])

    torch.optim.Optimizer.__init__ = make_and_remember
    # Its sums over ranks are still needed here when the script is done with it.
    dist.destroy_process_group = lambda *_: None
    ttrace.attach = lambda *_, **__: None
    sys.argv = words
    sys.path[0] = str(Path(words[0]).resolve().parent)
    output = io.StringIO()
    try:
        with contextlib.redirect_stdout(output), open(os.devnull, "w") as quiet:
            os.dup2(quiet.fileno(), 2)
            runpy.run_path(words[0], run_name="__main__")
        lines = [line for line in output.getvalue().splitlines() if line.startswith("losses ")]
        after = [whole(p) for o in optimizers for group in o.param_groups for p in group["params"]]
        losses = torch.tensor(json.loads(lines[-1].split(" ", 1)[1])) if lines else None
        torch.save({"parameters": after, "before": before, "losses": losses}, folder / str(rank))
    except BaseException:  # a SystemExit of the script's too: it is no end of this rank
        (folder / f"{rank}.error").write_text(traceback.format_exc()[-1500:])
        return 1
    return 0
