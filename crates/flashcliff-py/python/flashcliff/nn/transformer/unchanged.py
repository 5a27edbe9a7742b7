"""The check that tensors were not changed in place between a forward pass and its backward pass."""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import Any, NoReturn

from torch import Tensor

__all__ = ["Unchanged"]

_version = attrgetter("_version")


class Unchanged:
    """Tensors of a call whose values its backward pass has in another form, such as parameters in a packed matrix.

    Autograd would not see that they change, and the gradients would be those of values that are no longer there.

    Args:
        tensors: tensors that are not kept alive: nobody can change those that have gone.
        parameters: tensors that are kept, and asked all at once.
    """

    __slots__ = ("_known", "_parameters", "_versions")

    def __init__(
        self, tensors: Iterable[Tensor | None], parameters: Sequence[Tensor] = ()
    ) -> None:
        self._known: list[tuple[weakref.ref[Tensor], int]] = []
        self._parameters, self._versions = parameters, list[Any]()
        try:
            # Views have the version of the tensor that they show, which lives longer.
            known = [
                (weakref.ref(x if x._base is None else x._base), x._version)
                for x in tensors
                if x is not None
            ]
            self._versions = list(map(_version, parameters))
            self._known = known
        except RuntimeError:
            # Tensors of inference mode count no versions.
            self._parameters = ()

    def check(self) -> None:
        """Raises ``RuntimeError`` if a tensor was changed in place since the call."""
        for reference, version in self._known:
            x = reference()
            if x is not None and x._version != version:
                _refuse(x, version)
        if list(map(_version, self._parameters)) != self._versions:
            for x, version in zip(self._parameters, self._versions, strict=True):
                if x._version != version:
                    _refuse(x, version)


def _refuse(x: Tensor, version: int) -> NoReturn:
    raise RuntimeError(
        "one of the variables needed for gradient computation has been modified by an inplace operation: "
        f"[{x.type()} {list(x.shape)}] is at version {x._version}; expected version {version} instead. "
        "Call backward first, and then change inputs and parameters."
    )
