"""Starts capture in a Python process whose script knows nothing of it.

`ttrace record` puts this folder in front of PYTHONPATH, so that Python imports this file at start.
An existing sitecustomize would be hidden by it, and is therefore run too, after capture is in
place: what it imports is then captured like anything else. Without TTRACE_OUT nothing else happens,
and nothing that goes wrong here may reach the user's program.
"""

import os
import sys


def _chain_load() -> None:
    """Runs the sitecustomize that this file hides, if there is one."""
    import importlib.machinery
    import importlib.util

    here = os.path.dirname(os.path.abspath(__file__))
    elsewhere = [path for path in sys.path if os.path.abspath(path or os.curdir) != here]
    spec = importlib.machinery.PathFinder.find_spec("sitecustomize", elsewhere)
    if spec is None or spec.loader is None:
        return
    module = importlib.util.module_from_spec(spec)
    sys.modules["sitecustomize"] = module
    spec.loader.exec_module(module)


def _start() -> None:
    try:
        from ttrace.capture import boot
    except ImportError:
        # Another environment than ttrace's own: this file knows where the package lies. Behind
        # everything else, so that it hides nothing.
        package = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
        sys.path.append(os.path.dirname(package))
        from ttrace.capture import boot
    boot.install()


def _leave_reason(reason: str) -> None:
    """For `ttrace`, which says it at the end. The package cannot be used: it did not load."""
    import json

    line = json.dumps({"kind": "refused", "text": f"capture is off: {reason}"}) + "\n"
    try:
        with open(os.path.join(os.environ["TTRACE_OUT"], "messages.jsonl"), "a") as messages:
            messages.write(line)
    except OSError:
        pass


if os.environ.get("TTRACE_OUT"):
    try:
        _start()
    except Exception as error:
        sys.stderr.write(f"ttrace: capture is off: {type(error).__name__}: {error}\n")
        _leave_reason(f"{type(error).__name__}: {error}")
# Python itself reports what an existing sitecustomize raises, as it would without this file.
_chain_load()
