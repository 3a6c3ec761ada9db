"""Runs a trainer on Megatron, or a plain loop, with a fault in the middle of capture's reruns, on
one rank.

    TTRACE_FAULT='{"step": "forward", "fault": "exception", "rank": 1}' \
        torchrun --nproc-per-node 2 zoo/with_fault.py zoo/train_gpt.py --tp 2

For tests of "capture cannot harm" only: the package itself knows no such variable. Keys: `step` and
`fault` of the tables below, `rank`, and if wanted `iteration` (1) and `leg` (noise.1). Does nothing
in a run without capture.
"""

from __future__ import annotations

import json
import os
import resource
import runpy
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

SLOW_SECONDS, STUCK_SECONDS = 4.0, 600.0

LOOPS = ("step_digests.py",)  # of plain torch

# In the order in which they happen.
STEPS = (
    "start of capture",
    "first vote",
    "save gradients",
    "make the leg",
    "enter the leg",
    "forward",
    "backward",
    "record gradients",
    "leave the leg",
    "vote after the leg",
    "seal the leg",
    "put back",
    "last vote",
)
# What ranks tell each other, which need not work: of these docs/evidence/faults.md has no rows.
WORDS = ("tell scales", "add up scales", "learn scales")


def memory() -> None:
    raise MemoryError("out of memory, injected")


def exception() -> None:
    raise RuntimeError("injected")


def slow() -> None:
    time.sleep(SLOW_SECONDS)


def stuck() -> None:
    time.sleep(STUCK_SECONDS)


def killed() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def full_disk() -> None:
    """No file of this process may grow any more, as on a full disk."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (1, resource.RLIM_INFINITY))


FAULTS: dict[str, Callable[[], None]] = {
    "memory": memory,
    "exception": exception,
    "slow": slow,
    "stuck": stuck,
    "killed": killed,
    "full disk": full_disk,
}


def environment(
    out: Path, hook: Path, legs: str, leg_timeout: int, fault: object
) -> dict[str, str]:
    """Makes the trace folder `out`. What a launch of this script needs to be captured into it, with
    a fault or none. `hook` is the package's folder of that name."""
    out.mkdir()
    (out / "manifest.json").write_text('{"format": "ttrace", "version": 1}')
    return {
        "PYTHONPATH": str(hook),
        "TTRACE_OUT": str(out),
        "TTRACE_LEGS": legs,
        "TTRACE_LEG_TIMEOUT": str(leg_timeout),
        "TTRACE_FAULT": json.dumps(fault) if fault else "",
    }


class Fault:
    """What is to go wrong, and whether it is time."""

    def __init__(self, text: str) -> None:
        asked = json.loads(text)
        self.step: str = asked["step"]
        self.kind: str = asked["fault"]
        self._rank: int = asked["rank"]
        self._iteration: int = asked.get("iteration", 1)
        self._leg: str = asked.get("leg", "noise.1")
        self._happened = False
        if self.step not in (*STEPS, *WORDS) or self.kind not in FAULTS:
            raise SystemExit(f"no such fault: {text}")

    def here(self, step: str, session: Any, leg: str | None = None) -> None:
        """Called at each step of each rerun."""
        if step != self.step or int(os.environ.get("RANK", "0")) != self._rank:
            return
        started = session.started  # before that there is only one iteration to fail in
        if started and (session.iteration != self._iteration or leg not in (None, self._leg)):
            return
        # Memory may be there at the next attempt. A fault of code comes again.
        if self._happened and self.kind != "exception":
            return
        self._happened = True
        os.write(2, f"fault at {time.time():.3f}\n".encode())
        FAULTS[self.kind]()


def plant(fault: Fault, is_loop: bool) -> None:
    """Puts a call of `fault.here` into each step of a rerun."""
    from ttrace.capture import rerun
    from ttrace.capture.agreement import Agreement
    from ttrace.capture.course import Course
    from ttrace.capture.legs import Leg, LegFactory
    from ttrace.capture.session import Session
    from ttrace.capture.shared_scales import SharedScales

    sessions: list[Any] = []

    def session() -> Any:
        return sessions[-1]

    def before(owner: Any, name: str, act: Callable[..., None]) -> None:
        original = getattr(owner, name)

        def changed(self: Any, *args: Any, **kwargs: Any) -> Any:
            act(self, *args, **kwargs)
            return original(self, *args, **kwargs)

        setattr(owner, name, changed)

    before(Session, "start", lambda self, *args: fault.here("start of capture", self))

    def prepare(reruns: Any, legs: Any) -> None:
        sessions.append(reruns._session)
        fault.here("first vote", session())

    before(rerun.Reruns, "_prepare", prepare)
    before(Session, "scales_message", lambda self: fault.here("tell scales", self))
    before(Session, "learn_scales", lambda self, answer: fault.here("learn scales", self))
    before(SharedScales, "_added_up", lambda self, leg: fault.here("add up scales", session()))
    before(rerun.Reruns, "_make", lambda self, name: fault.here("make the leg", session(), name))

    def vote(self: Any, question: str, *args: Any) -> None:
        if question.endswith(" ends"):
            fault.here("vote after the leg", session(), question.removesuffix(" ends"))
        elif question == "put back":
            fault.here("last vote", session())

    before(Agreement, "vote", vote)
    before(Session, "seal", lambda self, iteration, leg: fault.here("seal the leg", self, leg))

    make_leg = LegFactory.make

    def make(self: Any, name: str) -> Any:
        leg = make_leg(self, name)
        if name == "real" or not isinstance(leg, Leg):
            return leg
        enter, leave = leg.enter, leg.exit

        def entering() -> None:
            fault.here("enter the leg", session(), name)
            enter()

        def leaving() -> None:
            fault.here("leave the leg", session(), name)
            leave()

        leg.enter, leg.exit = entering, leaving
        return leg

    LegFactory.make = make

    def rerun_done(course: Any, reduced: bool) -> None:
        if sessions and session().leg != "real":
            fault.here("record gradients", session(), session().leg)

    before(Course, "rerun_done", rerun_done)

    def in_leg(step: str) -> None:
        if sessions and session().leg != "real":
            fault.here(step, session(), session().leg)

    (plant_in_loop if is_loop else plant_in_megatron)(fault, session, in_leg)


def of_gradients(fault: Fault, replayer: Any, session: Callable[[], Any]) -> None:
    """While the gradients of the run are saved, and put back."""
    from ttrace.capture.state import Part

    save = replayer.save_gradients

    def save_gradients(self: Any) -> Any:
        fault.here("save gradients", session())
        parts = save(self)

        def put_back() -> None:
            fault.here("put back", session())
            parts[0].put_back()

        return [Part(parts[0].name, put_back), *parts[1:]]

    replayer.save_gradients = save_gradients


def plant_in_loop(fault: Fault, session: Callable[[], Any], in_leg: Callable[[str], None]) -> None:
    from ttrace.adapters.torch.repeat import repetition, replayer

    of_gradients(fault, replayer.LoopReplayer, session)
    play, backward = replayer.play, repetition._backward

    def faulty(*args: Any, **kwargs: Any) -> None:
        in_leg("forward")
        play(*args, **kwargs)

    def faulty_backward(*args: Any, **kwargs: Any) -> None:
        in_leg("backward")
        backward(*args, **kwargs)

    replayer.play, repetition._backward = faulty, faulty_backward


def plant_in_megatron(
    fault: Fault, session: Callable[[], Any], in_leg: Callable[[str], None]
) -> None:
    from megatron.core.pipeline_parallel import schedules

    from ttrace.adapters.megatron.replayer import MegatronReplayer

    of_gradients(fault, MegatronReplayer, session)
    step, run = schedules.backward_step, MegatronReplayer.run

    def backward_step(*args: Any, **kwargs: Any) -> Any:
        in_leg("backward")
        return step(*args, **kwargs)

    def faulty_run(replayer: Any, *leg: Any) -> None:
        if not getattr(replayer, "_faulty", False):
            replayer._faulty = True
            forward = replayer._arguments["forward_step_func"]

            def faulty(*args: Any, **kwargs: Any) -> Any:
                in_leg("forward")
                return forward(*args, **kwargs)

            replayer._arguments["forward_step_func"] = faulty
        run(replayer, *leg)

    schedules.backward_step, MegatronReplayer.run = backward_step, faulty_run


def main() -> None:
    script = Path(sys.argv[1])
    sys.argv = sys.argv[1:]
    sys.path[0] = str(script.resolve().parent)
    if os.environ.get("TTRACE_OUT") and os.environ.get("TTRACE_FAULT"):
        is_loop = script.name in LOOPS
        if not is_loop:
            import megatron_cpu

            megatron_cpu.enable()
        plant(Fault(os.environ["TTRACE_FAULT"]), is_loop)
    runpy.run_path(str(script), run_name="__main__")


if __name__ == "__main__":
    main()
