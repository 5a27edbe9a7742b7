"""The kernels of operators: emitted text as modules of Python."""

from __future__ import annotations

import hashlib
import linecache
from functools import lru_cache
from types import ModuleType
from typing import Any, NamedTuple

from .. import _core
from ..errors import MissingPackageError, UnsupportedError

__all__ = ["INSTEAD", "Kernels", "kernels", "require"]

INSTEAD = (
    "it is a matrix product over channels, and Triton kernels are those of lane operators; compute the linear maps with torch.einsum "
    "and give their results to sgp_norm, steerable_product or an operator of your own (flashcliff.operator)"
)
"""What to do where there are no Triton kernels of an operator."""


class Kernels(NamedTuple):
    """The kernels of an operator."""

    module: ModuleType
    split: list[tuple[str, int, bool]]
    """The kernels for rows of several blocks: the name, the width of its lanes, whether an instance has one block."""
    numbers: int
    """How many numbers each row has between these."""
    totals: list[list[int]]
    """For each total of rows the numbers whose sum it is."""

    def function(self, name: str) -> Any:
        """A kernel by its name."""
        return getattr(self.module, name)


def require() -> None:
    """Raises if Triton is not installed."""
    try:
        import triton  # noqa: F401
    except ImportError as error:
        raise MissingPackageError(
            f"the backend triton needs the package triton ({error}): install it with `pip install triton`, or what your build of "
            "PyTorch brings (pytorch-triton-rocm, pytorch-triton-xpu)"
        ) from None


@lru_cache(maxsize=1024)
def kernels(operator: _core.Operator) -> Kernels | None:
    """The kernels of an operator; ``None`` if its results are always zero.

    Raises:
        UnsupportedError: an operator with matrix products.
    """
    source = operator.triton()
    if source is None:
        if operator.has_matrix_products:
            raise UnsupportedError(f"{operator.name}: there is no Triton kernel of this operator: {INSTEAD}")
        return None
    text, split, numbers, totals = source
    return Kernels(_module(text), split, numbers, totals)


@lru_cache(maxsize=1024)
def _module(text: str) -> ModuleType:
    """The module of a text. Triton reads the lines of its kernels again, which are kept where Python looks for lines of files."""
    require()
    name = f"flashcliff._triton.emitted_{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    file = f"<{name}>"
    linecache.cache[file] = (len(text), None, text.splitlines(keepends=True), file)
    module = ModuleType(name)
    exec(compile(text, file, "exec"), module.__dict__)
    return module
