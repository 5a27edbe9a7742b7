"""The check that tensors were not changed in place between a forward pass and its backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterable

from torch import Tensor

__all__ = ["Unchanged"]


class Unchanged:
    """Tensors of a call whose values its backward pass has in another form, such as parameters in a packed matrix.

    Autograd would not see that they change, and the gradients would be those of values that are no longer there. The
    tensors are not kept alive: nobody can change those that have gone.
    """

    __slots__ = ("_known",)

    def __init__(self, tensors: Iterable[Tensor | None]) -> None:
        try:
            # Views have the version of the tensor that they show, which lives longer.
            self._known = [
                (weakref.ref(x if x._base is None else x._base), x._version)
                for x in tensors
                if x is not None
            ]
        except RuntimeError:
            # Tensors of inference mode count no versions.
            self._known = []

    def check(self) -> None:
        """Raises ``RuntimeError`` if a tensor was changed in place since the call."""
        for reference, version in self._known:
            x = reference()
            if x is not None and x._version != version:
                raise RuntimeError(
                    "one of the variables needed for gradient computation has been modified by an inplace operation: "
                    f"[{x.type()} {list(x.shape)}] is at version {x._version}; expected version {version} instead. "
                    "Call backward first, and then change inputs and parameters."
                )
