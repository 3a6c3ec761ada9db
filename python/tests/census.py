"""What capture could leave behind in a process: everything it may touch, counted before and after.

Functions are known by identity: one that is wrapped, or put back as another object, shows.
"""

import atexit
import contextlib
import gc
import os
import sys
import threading
import types

import torch
import torch.distributed.tensor.parallel
import torch.utils.checkpoint

_PREFIXES = ("torch", "accelerate", "lightning", "megatron")
_HOOKS = (
    *("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"),
    *("_state_dict_hooks", "_load_state_dict_pre_hooks", "_compiled_call_impl"),
)
_OF_OPTIMIZERS = (
    *("_optimizer_step_pre_hooks", "_optimizer_step_post_hooks"),
    *("_optimizer_state_dict_pre_hooks", "_optimizer_load_state_dict_post_hooks"),
)

_at_exit = []  # the interpreter keeps the places of those that were taken back, and counts them
_register, _unregister = atexit.register, atexit.unregister


def _registered(function, *args, **kwargs):
    _at_exit.append(function)
    return _register(function, *args, **kwargs)


def _unregistered(function):
    _at_exit[:] = [one for one in _at_exit if one != function]
    _unregister(function)


atexit.register, atexit.unregister = _registered, _unregistered


def _functions():
    """All functions of torch's modules and classes, by where they are."""
    found = {}
    for name, module in list(sys.modules.items()):
        if not name.startswith(_PREFIXES) or not isinstance(module, types.ModuleType):
            continue
        for key, value in list(vars(module).items()):
            if key == "reduce_op":
                continue  # warns who looks at it
            if isinstance(value, types.FunctionType | types.BuiltinFunctionType):
                found[f"{name}.{key}"] = value
            elif isinstance(value, type) and value.__module__ == name:
                for attribute, inner in list(vars(value).items()):
                    if callable(inner) or isinstance(inner, staticmethod | classmethod | property):
                        found[f"{name}.{key}.{attribute}"] = inner
    return found


def _hooks(models, optimizers):
    found = {}
    for k, model in enumerate(models):
        for name, module in model.named_modules():
            for table in _HOOKS:
                value = module.__dict__.get(table)
                found[f"model {k} {name} {table}"] = (
                    len(value) if isinstance(value, dict) else value
                )
            found[f"model {k} {name} attributes"] = sorted(module.__dict__)
        for name, parameter in model.named_parameters():
            for table in ("_backward_hooks", "_post_accumulate_grad_hooks"):
                found[f"model {k} {name} {table}"] = len(getattr(parameter, table) or ())
    for k, optimizer in enumerate(optimizers):
        for table in _OF_OPTIMIZERS:
            found[f"optimizer {k} {table}"] = len(getattr(optimizer, table))
        found[f"optimizer {k} attributes"] = sorted(
            key for key in vars(optimizer) if not key.startswith("_opt")
        )
    for module in map(sys.modules.get, ("torch.nn.modules.module", "torch.optim.optimizer")):
        for name, value in vars(module).items():
            if name.startswith("_global") and isinstance(value, dict):
                found[f"{module.__name__}.{name}"] = len(value)
    return found


class Census:
    """Of this process now, and of these models and optimizers."""

    def __init__(self, models=(), optimizers=()):
        gc.collect()
        self.functions = _functions()
        self.other = {
            **_hooks(models, optimizers),
            "atexit": list(_at_exit),
            "threads": sorted(thread.name for thread in threading.enumerate()),
            "tasks": len(os.listdir("/proc/self/task")),
            "import hooks": [id(finder) for finder in sys.meta_path],
            "excepthook": sys.excepthook,
            "open files": _files(),
            "hooks of saved tensors": torch._C._autograd._top_saved_tensors_default_hooks(True),
        }

    def differences(self, other):
        found = [
            name
            for name, value in self.functions.items()
            if other.functions.get(name, value) is not value
        ]
        # A module that was imported meanwhile may hold copies of wrappers.
        found += [name for name, value in other.functions.items() if "ttrace" in _made_in(value)]
        return found + [
            f"{name}: {value} before, {other.other[name]} after"
            for name, value in self.other.items()
            if other.other[name] != value
        ]


def _made_in(function):
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    name = getattr(code, "co_filename", "")
    return name.rpartition("site-packages")[2]


def _files():
    found = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            found.append(os.readlink(f"/proc/self/fd/{number}"))
    return sorted(name for name in found if name.startswith("/") and "/dev/" not in name)
