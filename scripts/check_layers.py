#!/usr/bin/env python3
"""Fails if a file depends on something above its own layer.

C++: data flows through STAGES in this order, and a stage may include only itself and those before
it. Public headers include the standard library and each other. Test files may include anything
that their own stage may.

Python: capture names tensors and runs hooks; what is numeric is C++. So the package may not import
a numeric library, and `import ttrace` may not import torch.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

STAGES = [
    "base",
    "region",
    "numeric",
    "trace",
    "align",
    "compare",
    "experiment",
    "step",
    "measure",
    "judge",
    "in_place",
    "localize",
    "audit",
    "diagnose",
    "report",
    "check",
    "run",
    "project",
    "cli",
]
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"', re.MULTILINE)
NUMERIC = {"numpy", "scipy", "pandas", "ml_dtypes", "safetensors"}
# Saves and restores numpy's random state around a leg; computes nothing.
MAY_IMPORT_NUMERIC = {"capture/state.py"}


def public_headers(root: Path) -> Iterator[str]:
    for path in sorted(root.glob("include/**/*.h")):
        for target in INCLUDE.findall(path.read_text()):
            if not target.startswith("ttrace/"):
                yield f"{path}: a public header includes {target}"


def is_of_tests(path: Path) -> bool:
    return path.parent.name == "testing" or path.stem.endswith(("_test", "_bench"))


def stages(root: Path) -> Iterator[str]:
    level = {name: i for i, name in enumerate(STAGES)}
    for path in sorted(root.glob("src/**/*")):
        if path.suffix not in {".h", ".cc"}:
            continue
        stage = path.relative_to(root).parts[1]
        if stage not in level:
            yield f"{path}: folder '{stage}' is not a known stage"
            continue
        for target in INCLUDE.findall(path.read_text()):
            if target.startswith("ttrace/"):
                continue
            if not target.startswith("src/"):
                yield f'{path}: write "src/..." or <...> instead of "{target}"'
                continue
            if "/testing/" in target and not is_of_tests(path):
                yield f"{path}: {target} is for tests"
            used = target.split("/")[1]
            if level.get(used, len(STAGES)) > level[stage]:
                yield f"{path}: '{stage}' may not use '{used}' ({target})"


def _imports(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            yield node.module


def _at_import(tree: ast.Module) -> Iterator[ast.stmt]:
    """The statements that run when the module is imported, apart from those for type checkers."""
    for node in tree.body:
        typing_only = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if not typing_only and not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node


def python(root: Path) -> Iterator[str]:
    package = root / "python" / "ttrace"
    for path in sorted(package.glob("**/*.py")):
        tree = ast.parse(path.read_text(), str(path))
        for name in _imports(tree):
            allowed = str(path.relative_to(package)) in MAY_IMPORT_NUMERIC
            if name.split(".")[0] in NUMERIC and not allowed:
                yield f"{path}: imports {name}; numbers are the business of C++"
        if path == package / "__init__.py":
            for name in _imports(ast.Module(list(_at_import(tree)), [])):
                if name.split(".")[0] == "torch":
                    yield f"{path}: `import ttrace` must not import torch"


def main() -> int:
    root = Path(__file__).resolve().parent.parent
    found = [*public_headers(root), *stages(root), *python(root)]
    print("\n".join(line.replace(f"{root}/", "") for line in found) or "layers: ok")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
