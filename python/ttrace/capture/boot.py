"""Patches modules of a framework right after they are executed, before anyone can copy a name.

`from m import f` binds whatever `m.f` is at that time. A finder in front of `sys.meta_path` lets
the real finder locate the module and only adds a step after its execution.
"""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

from ttrace.capture import process_messages
from ttrace.capture.scope import Scope, for_process
from ttrace.capture.settings import Settings

Patch = Callable[[ModuleType], None]


class _PatchingLoader(importlib.abc.Loader):
    """The real loader, and the patches after it."""

    def __init__(self, loader: Any, patch: Patch) -> None:
        self._loader = loader
        self._patch = patch

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        self._patch(module)

    def __getattr__(self, name: str) -> Any:
        # Loaders have optional methods (get_source, get_data, ...) that tracebacks ask for.
        return getattr(self._loader, name)


class PatchingFinder(importlib.abc.MetaPathFinder):
    """Knows which modules are to be patched."""

    def __init__(self, scope: Scope) -> None:
        self._scope = scope
        self._patches: dict[str, list[Patch]] = {}

    def remove(self) -> None:
        """Modules that are imported from now on are left alone."""
        self._patches.clear()
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def on_import(self, name: str, patch: Patch) -> None:
        """Calls `patch` with the module once it is executed, or now if it is already there."""
        self._patches.setdefault(name, []).append(patch)
        if name in sys.modules:
            self._apply_late(patch, sys.modules[name])

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname not in self._patches:
            return None
        for finder in sys.meta_path:
            find = getattr(finder, "find_spec", None)
            if finder is self or find is None:
                continue
            spec = find(fullname, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _PatchingLoader(spec.loader, self._executed)
                return spec
        return None

    def _executed(self, module: ModuleType) -> None:
        for patch in self._patches.get(module.__name__, ()):
            self._apply(patch, module)

    def _apply(self, patch: Patch, module: ModuleType) -> None:
        """A framework of another version may lack what is patched: that must not break its
        import."""
        try:
            patch(module)
        except Exception as error:
            reason = f"cannot observe {module.__name__}: {type(error).__name__}: {error}"
            sys.stderr.write(f"ttrace: {reason}\n")
            process_messages.leave(self._scope.settings.out, "refused", text=reason)

    def _apply_late(self, patch: Patch, module: ModuleType) -> None:
        """Somebody imported the module before capture began (a .pth file, an interpreter that
        embeds Python): others may have copied names from it, which now get the patched ones too."""
        before = dict(vars(module))
        self._apply(patch, module)
        now = vars(module)
        replaced = {
            id(value): now[name]
            for name, value in before.items()
            if name in now and now[name] is not value
        }
        self._scope.patches.replace_copies(replaced)


def install() -> None:
    """What the launcher has asked of this process, if anything: for as long as it lives."""
    settings = Settings.from_environment()
    if settings is not None:
        scope = Scope(settings)
        observe_frameworks(scope)
        for_process(scope)


def observe_frameworks(scope: Scope) -> None:
    """Prepares every adapter: their loops are found from now on. Imports no framework."""
    scope.watch()
    from ttrace.adapters.megatron import entry_points as megatron
    from ttrace.adapters.torch import accelerate, lightning
    from ttrace.capture import collective_calls, modules_beside

    finder = PatchingFinder(scope)
    sys.meta_path.insert(0, finder)
    scope.when_closed(lambda _: finder.remove())
    for name, patch in (
        (collective_calls.C10D, collective_calls.patch_c10d),
        (collective_calls.FUNCTIONAL, collective_calls.patch_functional),
        (modules_beside.MODULES, modules_beside.patch_modules),
    ):
        finder.on_import(name, functools.partial(patch, patches=scope.patches))
    megatron.register(finder.on_import, scope)
    accelerate.register(finder.on_import, scope)
    lightning.register(finder.on_import, scope)
