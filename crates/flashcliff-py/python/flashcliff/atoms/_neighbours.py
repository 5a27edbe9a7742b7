"""Neighbours within a cut-off, by vesin."""

from __future__ import annotations

import importlib
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from .._ops import checks
from ..errors import MissingPackageError


def neighbours(
    positions: Tensor,
    cutoff: float,
    cell: Tensor | None = None,
    pbc: bool | tuple[bool, bool, bool] = False,
) -> tuple[Tensor, Tensor]:
    """The edges between atoms that are nearer than a cut-off, by vesin.

    Each pair has two edges, one for each direction. In a periodic cell an atom has an edge to each image within the cut-off, its own images
    included, so a cell may be smaller than the cut-off. Edges are sorted by receiver, sender and shift: the same positions have the same
    edges in the same order.

    Shapes:
        - ``positions`` ``[atoms, 3]``, of float32 or float64 on any device; the search is on the CPU in float64
        - ``cell`` ``[3, 3]``: a lattice vector in each row
        - the edges ``[2, edges]`` of int64: senders, then receivers, as in PyTorch Geometric
        - the shifts ``[edges, 3]`` of int64: ``positions[sender] + shift @ cell`` is the image of the sender that is near the receiver

    Args:
        positions: the positions. They may lie outside of the cell.
        cutoff: the largest distance, in the unit of positions.
        cell: the lattice vectors; needed where ``pbc`` is true.
        pbc: whether the cell repeats, in all directions or in each.

    Returns:
        The edges and the shifts, on the device of the positions.

    Raises:
        MissingPackageError: vesin is not installed.
        ValueError: a shape or the cut-off is wrong, a number is not finite, or a periodic direction has no lattice vector.

    >>> import torch
    >>> edges, shifts = neighbours(torch.tensor([[0.0, 0, 0], [0, 0, 1], [0, 0, 3]]), 1.5)
    >>> edges.tolist()
    [[1, 0], [0, 1]]
    """
    cutoff = checks.positive("cutoff", cutoff)
    periodic = check_periodic(pbc)
    places, lattice = _checked(positions, cell, periodic)
    if not len(places):
        return positions.new_zeros(2, 0, dtype=torch.int64), positions.new_zeros(
            0, 3, dtype=torch.int64
        )
    search = package("vesin", "neighbour lists").NeighborList(cutoff=cutoff, full_list=True)
    receivers, senders, shifts = search.compute(
        places.numpy(), lattice.numpy(), list(periodic), quantities="ijS"
    )
    ends = [torch.from_numpy(own.astype("int64")) for own in (senders, receivers, shifts)]
    order = _order(*ends)
    edges = torch.stack([own[order] for own in ends[:2]])
    return edges.to(positions.device), ends[2][order].to(positions.device)


def check_periodic(pbc: Any) -> tuple[bool, bool, bool]:
    """Whether a cell repeats in each direction."""
    if not isinstance(pbc, (bool, Iterable)):
        raise TypeError(f"pbc: expected one boolean or three, got {pbc!r}")
    given = [pbc] * 3 if isinstance(pbc, bool) else list(pbc)
    if len(given) != 3:
        raise ValueError(f"pbc: expected one boolean or three, got {pbc!r}")
    a, b, c = (checks.flag("pbc", own) for own in given)
    return a, b, c


def package(name: str, what: str) -> ModuleType:
    """A package that need not be installed.

    Raises:
        MissingPackageError: it is not.
    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise MissingPackageError(
            f"{what}: expected the package {name}, which is not installed; run `pip install {name}`",
            name=name,
        ) from error


def _checked(positions: Any, cell: Any, periodic: tuple[bool, bool, bool]) -> tuple[Tensor, Tensor]:
    """Positions and lattice vectors of float64 on the CPU."""
    if not isinstance(positions, Tensor) or not positions.is_floating_point():
        got = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
        raise TypeError(f"positions: expected a tensor of floating-point numbers, got {got}")
    if positions.dim() != 2 or positions.shape[1] != 3:
        raise ValueError(f"positions: expected [atoms, 3], got {list(positions.shape)}")
    given = torch.zeros(3, 3) if cell is None else cell
    if not isinstance(given, Tensor):
        raise TypeError(f"cell: expected a torch.Tensor, got {type(given).__name__}")
    if tuple(given.shape) != (3, 3):
        raise ValueError(f"cell: expected [3, 3], got {list(given.shape)}")
    places, lattice = (own.detach().double().cpu().contiguous() for own in (positions, given))
    if not (places.isfinite().all() and lattice.isfinite().all()):
        raise ValueError("positions and cell: expected finite numbers")
    return places, completed(lattice, periodic)


def completed(lattice: Tensor, periodic: tuple[bool, bool, bool]) -> Tensor:
    """Lattice vectors of all directions, of which those that do not repeat are of length 1 and perpendicular to the others.

    Raises:
        ValueError: lattice vectors of periodic directions do not span so many dimensions.
    """
    kept = lattice[list(periodic)]
    if not len(kept):
        return torch.eye(3, dtype=lattice.dtype)
    values = torch.linalg.svdvals(kept)
    if not values[-1] > 1e-9 * values[0]:
        raise ValueError(
            f"cell: expected independent lattice vectors where pbc is true, got {lattice.tolist()} with pbc {periodic}"
        )
    rest = torch.linalg.svd(kept, full_matrices=True)[2][len(kept) :]
    found, others = lattice.clone(), iter(rest)
    for at, repeats in enumerate(periodic):
        if not repeats:
            found[at] = next(others)
    return found


def _order(senders: Tensor, receivers: Tensor, shifts: Tensor) -> Tensor:
    """The order of edges by receiver, sender and shift."""
    order = torch.arange(len(senders))
    for key in (*shifts.unbind(1)[::-1], senders, receivers):
        order = order[torch.sort(key[order], stable=True).indices]
    return order
