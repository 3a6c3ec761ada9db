"""Says what this interpreter has: `look.py OUT PACKAGE...` writes a JSON object to the file OUT.

Run by `ttrace doctor` as a rank would be, with capture's import hook in front of PYTHONPATH.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

OUT, PACKAGES = sys.argv[1], sys.argv[2:]


def version_of(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None


def torch_says() -> dict[str, Any]:
    """What torch says of itself; `error` if it is there and cannot be imported."""
    try:
        import torch
    except ModuleNotFoundError as error:
        # Something of its own that is missing is another matter.
        return {} if error.name == "torch" else {"error": f"{type(error).__name__}: {error}"}
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    try:
        said: dict[str, Any] = {"version": str(torch.__version__), "cuda": torch.version.cuda or ""}
        distributed = torch.distributed.is_available()
        said["gloo"] = distributed and torch.distributed.is_gloo_available()
        said["devices"] = [
            torch.cuda.get_device_name(i)
            for i in range(torch.cuda.device_count() if torch.cuda.is_available() else 0)
        ]
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"}
    return said


hook = sys.modules.get("sitecustomize")
with open(OUT, "w") as out:
    json.dump(
        {
            "python": ".".join(map(str, sys.version_info[:3])),
            "executable": sys.executable,
            "sitecustomize": getattr(hook, "__file__", None) or "",
            "packages": {name: version_of(name) for name in PACKAGES},
            "torch": torch_says(),
        },
        out,
    )
