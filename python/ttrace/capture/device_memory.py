"""Tensors in the memory of a device: where the writer takes them, and in the order of which stream.

What is done with them there is C++ (src/trace/device/device_copier.h): nothing here waits for a
device.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

Where = tuple[str, int, int]  # kind and number of the device, handle of the stream


class DeviceMemory:
    """Of one writer. Its thread's alone, as the writer is."""

    def __init__(self, writer: Any, driver: str, on_refused: Callable[[str], None]) -> None:
        """`on_refused(text)` is called once for a device whose memory the writer cannot take."""
        self._writer = writer
        self._driver = driver
        self._on_refused = on_refused
        self._opened: dict[int, bool] = {}  # by the number of a CUDA device

    def where(self, tensor: torch.Tensor) -> Where | None:
        """Where the writer takes this tensor itself. None: it has to be in host memory first."""
        if tensor.device.type != "cuda" or type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return None  # what wraps a tensor may have no memory of its own
        index = tensor.device.index
        if index not in self._opened:
            self._opened[index] = self._open(index)
        return ("cuda", index, _current_stream(index)) if self._opened[index] else None

    def _open(self, index: int) -> bool:
        try:
            self._writer.open_device("cuda", index, self._driver)
        except Exception as error:
            self._on_refused(
                f"tensors of CUDA device {index} are copied to the host one by one, and training "
                f"waits for each: {error}"
            )
            return False
        return True


def _current_stream(index: int) -> int:
    """The handle of the device's stream on which this thread runs now."""
    raw = getattr(torch._C, "_cuda_getCurrentRawStream", None)  # what torch's own compiler calls
    return torch.cuda.current_stream(index).cuda_stream if raw is None else raw(index)
