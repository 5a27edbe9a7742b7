"""The tiles of launches: how many rows and channels an instance of a kernel has, and how many instances there are.

A tile follows from sizes and the device alone, so the bits of sums over the batch do too. It is made so that the numbers that a thread
holds (components of tensors, parameters, running sums) stay in registers.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import contextmanager
from functools import lru_cache
from typing import Any, NamedTuple

import torch

__all__ = ["CHOICES", "Choice", "Device", "Load", "Tile", "device_of", "of_tensor", "tile_of", "using"]

_SMALLEST_TILE = 128
"""Lanes of a tile, where rows are shorter: one for each thread of four warps."""
_REGISTERS = 65536
_MOST_WARPS = 16


class Choice(NamedTuple):
    """What sizes leave open."""

    per_thread: int
    """The most numbers that a thread is given to hold."""
    registers: int
    """The registers that it then takes, a bound."""
    stages: int
    """The tiles that are on their way at once, where shared memory has room for them."""
    row: int = 49152
    """The most numbers of a row that one instance holds: three quarters of the registers of a multiprocessor. Longer rows have several
    blocks."""
    block: int = 1024
    """The most channels of one of several blocks."""


CHOICES = tuple(
    Choice(per_thread, registers, stages)
    for per_thread, registers in ((184, 255), (96, 128))
    for stages in (3, 2, 1)
)
"""The choices that are measured beside each other (``benches/peers/triton_gpu.py``)."""

_OF_LANES, _OF_SUMS = CHOICES[4], CHOICES[2]
"""The choices that calls take, without and with sums over the batch: the fastest for ``sgp_norm`` in the plane and in space together
(record 127). Running sums take as many registers as parameters, and kernels with them spill as soon as tiles are fetched ahead."""

_forced: Choice | None = None


@contextmanager
def using(choice: Choice | None) -> Any:
    """Makes all calls of a block take a choice, or with ``None`` their usual one; for measuring."""
    global _forced
    before, _forced = _forced, choice
    try:
        yield
    finally:
        _forced = before


class Device(NamedTuple):
    """What a tile depends on."""

    multiprocessors: int
    shared: int
    """Bytes of shared memory of an instance."""
    warp: int
    """Threads of a warp."""


class Load(NamedTuple):
    """What a row of one width has."""

    channels: int
    read: int
    """Components that are read for each lane."""
    held: int
    """Parameters and running sums of each channel."""
    written: int
    """Components that are written for each lane."""

    @property
    def numbers(self) -> int:
        """The numbers of a lane that are alive at once, a bound: outputs are made one after another."""
        return self.read + self.held + self.written // 2


class Tile(NamedTuple):
    """The tile of a launch."""

    is_whole: bool
    """Whether a block has all channels of a row."""
    rows: int
    blocks: tuple[int, int]
    """The channels of a block, of both widths."""
    instances: int
    """The instances along the batch."""
    warps: int
    stages: int


INTERPRETED = Device(multiprocessors=3, shared=1 << 16, warp=32)
"""What tiles are made for where Triton interprets kernels: several instances, so that tests meet several parts of sums."""


@lru_cache(maxsize=32)
def device_of(kind: str, index: int) -> Device:
    """The device, as Triton sees it."""
    if kind == "cpu":
        return INTERPRETED
    from triton.runtime import driver

    properties = driver.active.utils.get_device_properties(index)
    target = driver.active.get_current_target()
    return Device(properties["multiprocessor_count"], properties["max_shared_mem"], target.warp_size)


def tile_of(device: Device, loads: Sequence[Load], rows: int, has_sums: bool, element: int) -> Tile:
    """The tile for rows of both widths.

    Args:
        device: where it runs.
        loads: what rows have, of each width.
        rows: the number of rows.
        has_sums: whether parts of sums over the batch are kept.
        element: the bytes of an element.
    """
    choice = _forced or (_OF_SUMS if has_sums else _OF_LANES)
    return _tile(device, tuple(loads), rows, has_sums, element, choice)


@lru_cache(maxsize=1024)
def _tile(device, loads, rows, has_sums, element, choice):
    blocks = [_power(max(load.channels, 1)) for load in loads]
    is_whole = _numbers(loads, blocks) <= choice.row
    if not is_whole:
        blocks = [min(block, choice.block) for block in blocks]
        while _numbers(loads, blocks) > choice.row and max(blocks) > 1:
            blocks = [min(block, max(blocks) // 2) for block in blocks]
    lanes = max(blocks)
    tile_rows = max(1, min(_SMALLEST_TILE // lanes, _power(rows)))
    numbers = _numbers(loads, blocks) * tile_rows
    threads = min(_power(-(-numbers // choice.per_thread)), lanes * tile_rows)
    warps = max(1, min(threads // device.warp, _MOST_WARPS))
    tiles = -(-rows // tile_rows)
    holds = has_sums or any(load.held for load in loads)
    if not holds:
        return Tile(is_whole, tile_rows, tuple(blocks), tiles, warps, 1)
    # What an instance holds is read once: as many instances as multiprocessors have room for.
    side_by_side = max(1, min(_REGISTERS // (warps * device.warp * choice.registers), 8))
    instances = min(tiles, device.multiprocessors * side_by_side)
    row_bytes = element * sum(load.read * block for load, block in zip(loads, blocks))
    room = device.shared // (side_by_side * tile_rows * max(row_bytes, 1))
    stages = max(1, min(choice.stages, room)) if instances < tiles else 1
    return Tile(is_whole, tile_rows, tuple(blocks), instances, warps, stages)


def _numbers(loads, blocks):
    return sum(load.numbers * block for load, block in zip(loads, blocks))


def _power(size: int) -> int:
    """The next power of two."""
    return 1 << (size - 1).bit_length()


def of_tensor(tensor: torch.Tensor) -> Device:
    """The device of a tensor."""
    return device_of(tensor.device.type, tensor.device.index or 0)
