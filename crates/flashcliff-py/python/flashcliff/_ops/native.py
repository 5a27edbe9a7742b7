"""The compiled call path: which module of C++ it is, and which calls it may take.

It takes calls whose algebra and options are of the plainest types and mean what they say. All others go the way of Python, which
converts, warns and raises.
"""

from __future__ import annotations

from functools import partial
from types import ModuleType
from typing import Any

from .. import _core
from .._derived.choices import CHOICES
from ..algebra import Algebra, as_algebra
from .op import Op, Option

_LARGEST = (1 << 63) - 1
loaded: ModuleType | None = None
"""The module of C++ that operators use; ``None`` if they use Python alone."""
_registered: list[Any] = []
"""The kernels of C++ in PyTorch's dispatcher, which stay there as long as these objects."""


def use(module: ModuleType | None) -> None:
    """Makes all operators use a module of C++, or, with ``None``, Python alone, as they do after an error too."""
    from .._derived.table import OPS
    from . import eager

    _set(None, [None] * len(OPS))
    if module is None:
        return
    module.set_table(_core.native_table())
    lookups = [
        module.Lookup(count=len(op.tensors), resolve=partial(_resolve, eager.compiled, op))
        for op in OPS
    ]
    registered = []
    # Before 2.9 PyTorch's kernels cannot call those below them.
    for op in OPS if hasattr(module, "register") else ():
        resolve = partial(_resolve_registered, eager.compiled, op)
        registered.append(module.register(op.name, len(op.tensors), op.saves, op.linear, resolve))
    _registered[:] = registered
    _set(module, lookups)


def _set(module: ModuleType | None, lookups: list[Any]) -> None:
    global loaded
    from .._derived.table import OPS
    from . import eager

    eager.compiled.cache_clear()
    if module is None:
        _registered.clear()
    loaded = module
    for op, found in zip(OPS, lookups):
        # The rows of the table are constants but for this.
        object.__setattr__(op, "native", found)


def _resolve(compiled: Any, op: Op, mask: int, algebra: Any, *options: Any) -> Any:
    """The operator that the arguments of a call ask for; ``None`` if Python must look at them."""
    given = tuple(bool(mask >> index & 1) for index in range(len(op.tensors)))
    if not all(there or optional for there, optional in zip(given, op.optional)):
        return None
    if type(algebra) is tuple:
        if not _are_integers(algebra):
            return None
    elif type(algebra) is not Algebra:
        return None
    try:
        found = as_algebra(algebra)
        if not all(_means_itself(found, *pair) for pair in zip(op.options, options)):
            return None
        if _warns(op, options):
            return None
        return compiled(op, found.name, given, options)
    except Exception:
        # Python raises this again, where the user expects it to come from.
        return None


def _resolve_registered(compiled: Any, op: Op, mask: int, algebra: str, *options: Any) -> Any:
    """The operator of a call of PyTorch's dispatcher, whose schema has seen to the types of its options."""
    given = tuple(bool(mask >> index & 1) for index in range(len(op.tensors)))
    if not all(there or optional for there, optional in zip(given, op.optional)):
        return None
    try:
        return compiled(op, algebra, given, options)
    except Exception:
        # The kernel of Python raises this again.
        return None


def _means_itself(algebra: Algebra, option: Option, value: Any) -> bool:
    """Whether checks would leave the value of an option as it is, without a word."""
    if option.type == "str":
        return type(value) is str and value in CHOICES[option.name]
    if option.type == "float":
        return type(value) is float
    if option.type == "bool":
        return type(value) is bool
    if value is None:
        return True
    if option.type == "int?":
        return type(value) is int and 1 <= value <= _LARGEST
    return (
        type(value) is tuple
        and _are_integers(value)
        and len(value) > 0
        and list(value) == sorted(set(value))
        and 0 <= value[0]
        and value[-1] <= algebra.dim
    )


def _are_integers(values: tuple[Any, ...]) -> bool:
    return all(type(value) is int for value in values)


def _warns(op: Op, options: tuple[Any, ...]) -> bool:
    """Whether the call may have to warn of gates without scalars."""
    named = {option.name: value for option, value in zip(op.options, options)}
    if named.get("gate", "none") == "none":
        return False
    carried = (named.get(name) for name in ("left", "right", "grades"))
    return any(grades is not None and 0 not in grades for grades in carried)
