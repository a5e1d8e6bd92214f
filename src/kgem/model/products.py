"""Matrix products by whichever of torch's two libraries has the wider kernels on this processor; both are exact.

On AMD processors with AVX-512, MKL multiplies float32 matrices with AVX2, and oneDNN, which torch has for other types,
takes half the time. Torch only asks oneDNN for float32 where rounded factors are allowed (`fp32_precision = bf16`).
Without AMX it has no kernels that round them. So the permission is given for a product at a time, and only where a
product of numbers that bfloat16 cannot hold comes out exact.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

__all__ = ["add_product", "is_wide", "multiply"]

LEAST_SIDE = 16  # rows and columns: thinner products are faster in MKL
LEAST_SIZE = 2**20  # multiplications: below, calling oneDNN costs more than it saves

_lock = threading.Lock()
_inside = 0  # threads that have the permission
_before: Any = None  # what was permitted without them


def multiply(a: Tensor, b: Tensor, out: Tensor | None = None) -> Tensor:
    """a b, (n, k) by (k, m), as torch.mm has it."""
    if not _suits(a, b):
        return torch.mm(a, b, out=out)
    with _wide():
        return torch.mm(a, b, out=out)


def add_product(total: Tensor, a: Tensor, b: Tensor) -> Tensor:
    """Adds a b to total (n, m), which is returned."""
    if not _suits(a, b):
        return total.addmm_(a, b)
    with _wide():
        return total.addmm_(a, b)


@cache
def is_wide() -> bool:
    """Whether oneDNN multiplies float32 matrices with wider kernels than MKL here, and without rounding them."""
    amd = "AuthenticAMD" in _processor()
    if not (amd and torch.backends.mkl.is_available() and torch.backends.mkldnn.is_available()):  # type: ignore[no-untyped-call]
        return False
    if torch.backends.cpu.get_cpu_capability() != "AVX512" or torch.cpu._is_amx_tile_supported():
        return False
    if not hasattr(getattr(torch.backends.mkldnn, "matmul", None), "fp32_precision"):
        return False  # torch before 2.9 has no such permission
    odd = torch.eye(128).mul_(257.0)  # a bit more than bfloat16 has
    with _wide():
        return torch.equal(torch.mm(odd, odd), torch.eye(128).mul_(257.0**2))


def _suits(a: Tensor, b: Tensor) -> bool:
    if a.dtype != torch.float32 or a.device.type != "cpu":
        return False
    (n, k), m = a.shape, b.shape[1]
    return min(n, k, m) >= LEAST_SIDE and n * k * m >= LEAST_SIZE and is_wide()


@contextmanager
def _wide() -> Iterator[None]:
    """Inside, oneDNN may be asked for float32; threads share the permission, the last one takes it back."""
    global _inside, _before
    matmul: Any = torch.backends.mkldnn.matmul  # type: ignore[attr-defined]
    with _lock:
        if not _inside:
            _before = matmul.fp32_precision
            matmul.fp32_precision = "bf16"
        _inside += 1
    try:
        yield
    finally:
        with _lock:
            _inside -= 1
            if not _inside:
                matmul.fp32_precision = _before


def _processor() -> str:
    """What the system says about it, where it says anything."""
    try:
        return Path("/proc/cpuinfo").read_text()
    except OSError:
        return ""
