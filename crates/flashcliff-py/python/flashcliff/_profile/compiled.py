"""Puts a clock around the calls of the compiled call path (:mod:`flashcliff.native`).

That path reaches the kernels by a table of C functions, ``src/native.rs``. While a profile is active it has another table,
whose functions are Python's: each calls its counterpart in the first table between two readings of the clock. So the profile sees
calls that no Python code makes: gradients, and operators in graphs of ``torch.compile``.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable
from typing import Any

from .. import _core
from .._ops import native
from .._ops.op import MADE
from .clock import timed
from .events import Key

_VERSION = 3
"""The version of the table that this module knows."""

_DTYPES = ("f32", "f64", "bf16", "f16")
_VIEW = struct.Struct("QQQI4x")
_MEMORY = struct.Struct("QQQQQQ")
_PASS = ctypes.CFUNCTYPE(
    ctypes.c_bool,
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_void_p,
    ctypes.c_void_p,
)


class _Table(ctypes.Structure):
    _fields_ = (
        ("version", ctypes.c_uint64),
        ("plan", ctypes.c_void_p),
        ("forward", ctypes.c_void_p),
        ("backward", ctypes.c_void_p),
        ("plan_run", ctypes.c_void_p),
        ("run", ctypes.c_void_p),
    )


_kept: list[Any] = []
"""The table and its functions. They stay, since a call on another thread may still be on its way when a profile ends."""
_before: list[Callable[[Any], None]] = []
"""The function ``native.use``, while another is in its place."""


def install() -> None:
    """Makes the compiled call path use the table with clocks, if that path is in use."""
    _before.append(native.use)
    native.use = _use
    _start()


def remove() -> None:
    """Makes the compiled call path use its own table."""
    if not _before:
        return
    native.use = _before.pop()  # type: ignore[assignment]
    if native.loaded is not None:
        native.loaded.set_table(_core.native_table())


def _start() -> None:
    if native.loaded is not None:
        native.loaded.set_table(_address())


def _use(module: Any) -> None:
    """``native.use`` during a profile."""
    _before[0](module)
    _start()


def _address() -> int:
    """The address of the table with clocks."""
    if not _kept:
        theirs = _Table.from_address(_core.native_table())
        if theirs.version != _VERSION:
            raise RuntimeError(
                f"flashcliff.profile: expected version {_VERSION} of the table of kernels, got {theirs.version}; set "
                "FLASHCLIFF_NATIVE=0 to profile without the compiled call path"
            )
        forward = _PASS(_clocked(_PASS(theirs.forward), False))
        backward = _PASS(_clocked(_PASS(theirs.backward), True))
        addresses = [ctypes.cast(function, ctypes.c_void_p) for function in (forward, backward)]
        table = _Table.from_buffer_copy(theirs)
        table.forward, table.backward = (address.value for address in addresses)
        _kept[:] = table, forward, backward
    return ctypes.addressof(_kept[0])


def _clocked(inner: Any, is_backward: bool) -> Callable[..., bool]:
    def call(operator: int, views: int, count: int, place: int, memory: int) -> bool:
        ran: list[bool] = []

        def once() -> bool:
            ran.append(inner(operator, views, count, place, memory))
            return ran[0]

        try:
            key, gpu = _read(operator, views, count, place, memory, is_backward)
            timed(key, gpu, once)
        except Exception:
            # An error of the clock must not become one of the call.
            if not ran:
                return bool(inner(operator, views, count, place, memory))
        return ran[0]

    return call


def _read(
    operator: int, views: int, count: int, place: int, memory: int, is_backward: bool
) -> tuple[Key, bool]:
    """The row of a call by the arguments of its pass, and whether it is on a GPU."""
    tensors = list(_VIEW.iter_unpack(ctypes.string_at(views, _VIEW.size * count)))
    shapes = [
        struct.unpack(f"{rank}q", ctypes.string_at(shape, 8 * rank))
        for _, shape, rank, _ in tensors
    ]
    device = ctypes.c_int64.from_address(place).value
    _, saved, workspace, length, _, grads = _MEMORY.unpack(ctypes.string_at(memory, _MEMORY.size))
    wanted: tuple[bool, ...] = ()
    if is_backward:
        addresses = struct.unpack(f"{count}Q", ctypes.string_at(grads, 8 * count))
        wanted = tuple([address != 0 for address in addresses])
    # Sums that nobody keeps lie after the workspace, or in a tensor that goes at once.
    held = None if is_backward or native.loaded is None else native.loaded.held()
    saves = not is_backward and saved not in (0, workspace + length) and held is not False
    key = Key(
        MADE[operator],
        "backward" if is_backward else "forward",
        tuple(shapes),
        _DTYPES[tensors[0][3]],
        "cpu" if device < 0 else f"cuda:{device}",
        wanted,
        saves,
        held,
    )
    return key, device >= 0
