"""`ttrace check --engine ray`: each part of a check is a task on a Ray cluster.

The native command becomes this process (`src/cli/ray_engine.cc`) and hands over what to run as
JSON. A task runs `ttrace check --part` in its worker and returns the part's bytes, so that workers
need to see the traces but no common folder to write to. The result is made here, by `ttrace merge`.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

COULD_NOT_DECIDE = 2
# A part whose worker dies is measured again: nodes go away. One that dies each time is killed by
# something in the part itself, such as its need of memory.
MOST_ATTEMPTS = 4


def measure(job: dict[str, Any], part: int, of: int) -> tuple[str, Any]:
    """In a worker: ("part", its bytes), or ("unseen", where and which folder), or ("broken", why).

    Pickled by value, because this module is the main one: whatever it needs it imports itself.
    """
    import os
    import socket
    import tempfile
    from pathlib import Path

    host = socket.gethostname()
    try:
        from ttrace import _native
    except ImportError as error:
        return "broken", f"on {host} ttrace is not installed ({error})"
    if os.path.isdir(job["working_folder"]):
        os.chdir(job["working_folder"])
    for folder in job["folders"]:
        path = os.path.join(job["working_folder"], folder)
        if not os.path.isdir(path):
            return "unseen", (host, path)
    with tempfile.TemporaryDirectory(prefix="ttrace-part-") as folder:
        out = Path(folder) / "part"
        words = ["--threads", str(job["threads"]), "--part", f"{part}/{of}", "--out-part", str(out)]
        code = _native.main(["ttrace", *job["check"], *words])
        # A part that failed says why to whoever merges it.
        if out.exists():
            return "part", out.read_bytes()
        return "broken", f"on {host} it left nothing (exit code {code})"


class Progress:
    """One line on stderr that is rewritten, or now and then a new one where nobody looks on."""

    def __init__(self) -> None:
        self.rewrites = sys.stderr.isatty()
        self.said = time.monotonic()

    def show(self, text: str, last: bool = False) -> None:
        now = time.monotonic()
        if self.rewrites:
            sys.stderr.write(f"\r\033[K{'' if last else text}")
        elif last or now - self.said >= 5:
            sys.stderr.write(f"ttrace: {text}\n")
            self.said = now
        sys.stderr.flush()

    def note(self, text: str) -> None:
        sys.stderr.write(f"{chr(13) + chr(27) + '[K' if self.rewrites else ''}ttrace: {text}\n")
        sys.stderr.flush()


class Failed(Exception):
    """The parts cannot be made; what it says is for the user."""


def run_parts(ray: Any, job: dict[str, Any], of: int, folder: Path) -> None:
    """Leaves all parts in `folder`."""
    task = ray.remote(num_cpus=job["threads"], max_retries=0, scheduling_strategy="SPREAD")(measure)
    progress = Progress()
    attempts = dict.fromkeys(range(1, of + 1), 1)
    running = {task.remote(job, part, of): part for part in attempts}
    died = (
        ray.exceptions.WorkerCrashedError,
        ray.exceptions.NodeDiedError,
        ray.exceptions.OutOfMemoryError,
        ray.exceptions.LocalRayletDiedError,
        ray.exceptions.ObjectLostError,
    )
    done = 0
    while running:
        nodes = sum(node["Alive"] for node in ray.nodes())
        progress.show(f"measured {done} of {of} parts on {nodes} node{'s' if nodes != 1 else ''}")
        ready, _ = ray.wait(list(running), timeout=1)
        for reference in ready:
            part = running.pop(reference)
            try:
                kind, value = ray.get(reference)
            except died as error:
                if attempts[part] == MOST_ATTEMPTS:
                    raise Failed(
                        f"part {part} of {of}: its worker died {MOST_ATTEMPTS} times, the last "
                        f"time so: {str(error).strip().splitlines()[0]}"
                    ) from error
                attempts[part] += 1
                progress.note(
                    f"the worker of part {part} of {of} died; the part is measured again "
                    f"(attempt {attempts[part]} of {MOST_ATTEMPTS})"
                )
                running[task.remote(job, part, of)] = part
                continue
            except ray.exceptions.RayError as error:
                raise Failed(f"part {part} of {of}: {str(error).strip()}") from error
            if kind == "unseen":
                host, path = value
                raise Failed(
                    f"the trace folder {path} is not there on {host}, which is to measure part "
                    f"{part} of {of}: all nodes need to see it under this name, as on a file "
                    "system that they share"
                )
            if kind == "broken":
                raise Failed(f"part {part} of {of}: {value}")
            (folder / f"part-{part:05}-of-{of:05}.ttpart").write_bytes(value)
            done += 1
    progress.show(f"measured {of} of {of} parts", last=True)


def answers(address: str) -> str:
    """Why nobody listens at `address`; empty if somebody does. Ray itself tries for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():
        return ""  # "local", "auto": Ray knows
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=10).close()
    except OSError as error:
        return str(error)
    return ""


def check(job: dict[str, Any]) -> int:
    try:
        import ray
    except ImportError:
        raise Failed("--engine ray needs Ray: pip install 'torch-ttrace[ray]'") from None
    from ttrace import _native

    # A cluster of its own rather than one that happens to run here: where it is to be another, the
    # user or `ray job submit` says so.
    address = job["address"] or os.environ.get("RAY_ADDRESS") or "local"
    if silence := answers(address):
        raise Failed(f"no Ray cluster at {address}: {silence}")
    try:
        ray.init(address=address, log_to_driver=False, logging_level="ERROR")
    except Exception as error:  # Ray's own errors, those of sockets, and whatever else
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise Failed(f"no Ray cluster at {address}: {reason[0]}") from error
    job["threads"] = job["threads"] or 1
    with tempfile.TemporaryDirectory(prefix="ttrace-parts-") as folder:
        try:
            cpus = int(ray.cluster_resources().get("CPU", 1))
            run_parts(ray, job, job["parts"] or max(1, cpus // job["threads"]), Path(folder))
        finally:
            ray.shutdown()
        return _native.main(["ttrace", *job["merge"], folder])


def main() -> int:
    try:
        return check(json.loads(sys.argv[1]))
    except Failed as failed:
        print(f"ttrace: {failed}", file=sys.stderr)
        return COULD_NOT_DECIDE
    except KeyboardInterrupt:
        print("ttrace: interrupted", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
