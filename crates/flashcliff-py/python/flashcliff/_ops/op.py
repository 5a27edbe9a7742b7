"""An operator as Python knows it. The rows are in :mod:`flashcliff._derived.table`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

from .. import _core
from .._derived.choices import CHOICES, FUNCTIONS
from ..algebra import by_name

BIAS_MODES = CHOICES["bias_mode"]
"""The modes of a bias that is given."""

CACHED = 256
"""How many operators are kept, of all algebras and options."""


@dataclass(frozen=True)
class Option:
    """An option, as the schema of an operator of PyTorch declares it."""

    name: str
    type: str
    default: Any
    native: str | None
    """The name of the setting in the compiled half; ``None`` if it is not one of the operator."""


@dataclass(frozen=True, eq=False)
class Op:
    """An operator of the library."""

    name: str
    tensors: tuple[str, ...]
    """The names of the inputs; those that end in ``?`` may be ``None``."""
    options: tuple[Option, ...]
    parameters: tuple[str, ...] = ()
    """The names of the inputs without a batch axis."""
    says: tuple[tuple[str, str], ...] = ()
    """Inputs that may be absent, each with the setting that follows from whether it is given."""
    saves: bool = False
    """Whether forward may save sums, or a tensor, for backward."""
    linear: bool = False
    """Whether the gradient needs the gradient of the output alone."""
    undoes_norm: bool = False
    """Whether backward reads the output if there is a norm, to undo the norm on it."""
    autocast: bool = False
    """Under autocast, tensors with a batch axis are cast to its element type. Other operators run
    in the type that their tensors have."""

    names: tuple[str, ...] = field(init=False)
    """The names of the inputs, bare."""
    optional: tuple[bool, ...] = field(init=False)
    """Which inputs may be ``None``."""
    lanes: tuple[bool, ...] = field(init=False)
    """Which inputs have a batch axis; the others are parameters."""
    everything: tuple[bool, ...] = field(init=False)
    """:meth:`given` of all inputs."""
    native: Any = field(init=False, default=None)
    """The compiled call path, if there is one (:mod:`flashcliff._ops.native`)."""

    def __post_init__(self) -> None:
        names = tuple(name.rstrip("?") for name in self.tensors)
        object.__setattr__(self, "names", names)
        object.__setattr__(self, "optional", tuple(name.endswith("?") for name in self.tensors))
        object.__setattr__(self, "lanes", tuple(name not in self.parameters for name in names))
        object.__setattr__(self, "everything", (True,) * len(names))

    def given(self, tensors: Sequence[Any]) -> tuple[bool, ...]:
        """Which inputs are not ``None``."""
        if True not in self.optional:
            return self.everything
        return tuple(tensor is not None for tensor in tensors)

    def named(self, tensors: Sequence[Any]) -> list[tuple[str, Any, bool]]:
        """The inputs that are there, or must be: name, tensor, and whether it has a batch axis."""
        rows = zip(self.names, tensors, self.lanes, self.optional)
        return [(name, x, lane) for name, x, lane, may in rows if x is not None or not may]

    def function(self, options: Sequence[Any]) -> str:
        """The name of the function that was called, for messages: a choice may have its own."""
        for option, value in zip(self.options, options):
            if option.name in FUNCTIONS and value in FUNCTIONS[option.name]:
                return FUNCTIONS[option.name][value]
        return self.name

    def reads_output(self, *options: Any) -> bool:
        """Whether backward reads the output, by options. Otherwise it is not kept in memory."""
        if not self.undoes_norm:
            return False
        named = {option.name: value for option, value in zip(self.options, options)}
        return named["norm"] != "none"

    def make(
        self, algebra: _core.Algebra, given: tuple[bool, ...], options: tuple[Any, ...]
    ) -> _core.Operator:
        """The operator of the compiled half."""
        settings: dict[str, Any] = {}
        block_bytes = None
        for option, value in zip(self.options, options):
            if option.native is None:
                block_bytes = value
            else:
                settings[option.native] = value
        for name, setting in self.says:
            is_given = given[self.names.index(name)]
            if setting == "bias":
                settings[setting] = _bias(settings[setting], is_given)
            else:
                settings[setting] = is_given
        return _core.Operator(self.name, algebra, settings, block_bytes)


def _bias(mode: str, is_given: bool) -> str:
    """The bias of the compiled half: whether there is one, the tensor says."""
    if mode not in BIAS_MODES:
        raise ValueError(
            f"unknown bias mode `{mode}`: expected one of {', '.join(BIAS_MODES)}"
        )
    return mode if is_given else "none"


class Made(NamedTuple):
    """The ingredients of a compiled operator."""

    op: Op
    algebra: str
    given: tuple[bool, ...]
    options: tuple[Any, ...]


MADE: dict[int, Made] = {}
"""The origins of compiled operators, by the addresses that C functions know them by. The row of an operator that is
gone stays until another has its address."""


def present(tensors: Sequence[Any]) -> Sequence[Any]:
    """The tensors that are not ``None``."""
    for tensor in tensors:
        if tensor is None:
            return [tensor for tensor in tensors if tensor is not None]
    return tensors


@lru_cache(maxsize=CACHED)
def operator(
    op: Op, algebra: str, given: tuple[bool, ...], options: tuple[Any, ...]
) -> _core.Operator:
    """The compiled operator of an algebra and options; made once, unless many others are used
    before the next time."""
    try:
        made = op.make(by_name(algebra)._core, given, options)
    except OverflowError as error:
        raise ValueError(f"{op.name}: an option is out of range: {error}") from None
    MADE[made.native] = Made(op, algebra, given, options)
    return made
