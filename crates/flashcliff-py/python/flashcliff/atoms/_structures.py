"""Structures of atoms as one ragged batch."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .._ops import checks
from .._ops.remedies import check_tensor
from ..graphs import Graph, Relation, difference, gather
from ._neighbours import neighbours


class Structures:
    """Structures of atoms as one ragged batch, with the edges between neighbours.

    Shapes:
        - ``positions`` ``[atoms, 3]``, float32 or float64
        - ``species`` ``[atoms]``, int64: the place of each atom's element in a list
        - ``batch`` ``[atoms]``, int64: the structure of each atom, as in PyTorch Geometric
        - ``edge_index`` ``[2, edges]``, int64: senders and receivers
        - ``shifts`` ``[edges, 3]``, of any numbers: the cells between an edge's sender and the image that is near the receiver
        - ``cell`` ``[structures, 3, 3]``: a lattice vector in each row; zeros for a structure without a cell

    The vector of an edge is ``positions[sender] - positions[receiver] + shift @ cell``. Edges that are longer than the cut-off of a
    :class:`flashcliff.nn.Potential` change nothing: neighbours within a larger distance serve as long as no atom moves by half of
    the difference.

    Structures are a tree of tensors for PyTorch, so :func:`flashcliff.capture` takes them as arguments of a step. A graph is
    recorded for each size of batch: :meth:`stack` fills batches up to one size.

    Args:
        positions: the positions of atoms.
        species: their elements.
        edge_index: the edges, of :func:`neighbours` for example.
        shifts: the shifts of edges; 0 by default.
        cell: the lattice vectors.
        batch: the structure of each atom; by default all are of one.
        count: the number of structures; by default that of ``cell``, or 1.

    Raises:
        TypeError: a tensor has another element type.
        ValueError: a shape or a number is out of range.
    """

    positions: Tensor
    """``[atoms, 3]``"""
    species: Tensor
    """``[atoms]``"""
    cell: Tensor
    """``[structures, 3, 3]``"""
    offsets: Tensor
    """``[edges, 3]``: ``shift @ cell`` of each edge."""
    strain: Tensor | None
    """``[structures, 3, 3]``: a deformation of the vectors of edges, by which stress is a derivative."""
    graph: Graph
    """The senders and receivers of edges."""
    structures: Relation
    """The structure of each atom."""
    edge_structures: Relation
    """The structure of each edge."""
    elements: int
    """One more than the largest species, or 0 if that is not known: within captured steps, whose species are on the GPU."""

    def __init__(
        self,
        positions: Tensor,
        species: Tensor,
        edge_index: Tensor,
        shifts: Tensor | None = None,
        cell: Tensor | None = None,
        batch: Tensor | None = None,
        count: int | None = None,
    ) -> None:
        _check_positions(positions)
        check_tensor("edge_index", edge_index)
        _check_integers("species", species)
        for name, given in (("cell", cell), ("batch", batch), ("shifts", shifts)):
            if given is not None:
                check_tensor(name, given)
        if batch is not None:
            _check_integers("batch", batch)
        if cell is not None and tuple(cell.shape[1:]) != (3, 3):
            raise ValueError(
                f"cell: expected [structures, 3, 3], got {list(cell.shape)}; the cell of one structure is `cell.unsqueeze(0)`"
            )
        atoms, edges = len(positions), edge_index.shape[-1]
        count = (
            (1 if cell is None else len(cell)) if count is None else checks.count("count", count)
        )
        batch = species.new_zeros(atoms, dtype=torch.int64) if batch is None else batch
        if shifts is not None:
            _check_shape("shifts", shifts, edges, 3)
            if cell is None and shifts.any():
                raise ValueError("cell: expected lattice vectors, which `shifts` count, got None")
        cell = positions.new_zeros(count, 3, 3) if cell is None else cell
        _check_shape("species", species, atoms)
        _check_shape("batch", batch, atoms)
        _check_shape("cell", cell, count, 3, 3)
        self.positions, self.species = positions, species.long()
        self.elements = _elements(species)
        self.cell, self.strain = cell.to(positions), None
        self.graph = Graph(edge_index, atoms)
        self.structures = Relation(batch, count)
        of_edges = batch[edge_index[1].long()]
        self.edge_structures = Relation(of_edges, count)
        self.offsets = positions.new_zeros(edges, 3)
        if shifts is not None:
            # The sum of a position and many cells is rounded once.
            own = shifts.double().unsqueeze(1) @ cell.double()[of_edges]
            self.offsets = own.squeeze(1).to(positions)

    @staticmethod
    def of(
        positions: Tensor,
        species: Tensor,
        cutoff: float,
        cell: Tensor | None = None,
        pbc: bool | tuple[bool, bool, bool] = False,
    ) -> Structures:
        """One structure, with the edges of :func:`neighbours`.

        Args:
            positions: ``[atoms, 3]``.
            species: ``[atoms]``.
            cutoff: the largest length of an edge.
            cell: ``[3, 3]``: the lattice vectors.
            pbc: whether the cell repeats, in all directions or in each.

        Raises:
            MissingPackageError: vesin is not installed.
        """
        edges, shifts = neighbours(positions, cutoff, cell, pbc)
        cells = None if cell is None else cell.unsqueeze(0)
        return Structures(positions, species, edges, shifts, cells)

    @staticmethod
    def stack(
        many: Sequence[Structures], *, atoms: int | None = None, edges: int | None = None
    ) -> Structures:
        """Several batches as one.

        With ``atoms`` and ``edges`` the batch is filled up to so many: by one more structure, after the others, of atoms without
        neighbours, and by edges that are longer than any cut-off. These lead from atoms to themselves, and all atoms have as many of
        them, so that no sum is much longer than others. So batches of other structures have one
        shape, for one graph of :func:`flashcliff.capture`. Leave the last energy, and the forces of the last atoms, out of losses.

        Args:
            many: batches of the same element type on the same device.
            atoms: the number of atoms of the result, more than ``many`` have.
            edges: the number of edges of the result.

        Raises:
            TypeError: batches have other element types; sizes are no integers.
            ValueError: there are no batches, or more atoms or edges than the result shall have.
            RuntimeError: batches are on several devices.
        """
        if not isinstance(many, Iterable):
            raise TypeError(f"stack: expected batches of structures as a sequence, got {many!r}")
        parts, missing = list(many), 0
        if not parts:
            raise ValueError("stack: expected at least one batch of structures, got none")
        for part in parts:
            check_structures(part)
        _check_alike(parts)
        if (atoms is None) != (edges is None):
            raise ValueError(
                f"stack: expected both `atoms` and `edges`, or none of them, got {atoms} and {edges}"
            )
        if atoms is not None and edges is not None:
            atoms, edges = checks.count("atoms", atoms), checks.count("edges", edges)
            missing = edges - sum(part.edge_count for part in parts)
            parts.append(_filling(parts, atoms, missing))
        index, batch, at, count = [], [], 0, 0
        for part in parts:
            index.append(part.edge_index + at)
            batch.append(part.batch + count)
            at, count = at + part.atom_count, count + part.count
        own = torch.arange(missing, device=batch[0].device) % max(at, 1)
        index.append(torch.stack([own, own]))
        whole = Structures(
            torch.cat([part.positions for part in parts]),
            torch.cat([part.species for part in parts]),
            torch.cat(index, dim=1),
            cell=torch.cat([part.cell for part in parts]),
            batch=torch.cat(batch),
        )
        of_filling = whole.offsets[len(whole.offsets) - missing :] + FAR
        whole.offsets = torch.cat([*(part.offsets for part in parts), of_filling])
        if any(part.strain is not None for part in parts):
            none = torch.zeros_like
            whole.strain = torch.cat([none(p.cell) if p.strain is None else p.strain for p in parts])
        return whole

    @property
    def count(self) -> int:
        """The number of structures."""
        return self.structures.count

    @property
    def atom_count(self) -> int:
        """The number of atoms."""
        return self.graph.num_nodes

    @property
    def edge_count(self) -> int:
        """The number of edges."""
        return self.graph.num_edges

    @property
    def batch(self) -> Tensor:
        """The structure of each atom, ``[atoms]`` of int64."""
        return self.structures.targets.long()

    @property
    def edge_index(self) -> Tensor:
        """Senders and receivers, ``[2, edges]`` of int64."""
        return torch.stack([self.graph.senders.targets, self.graph.receivers.targets]).long()

    def vectors(self) -> Tensor:
        """The vector of each edge from its receiver to the image of its sender, ``[edges, 3]``, with derivatives by positions and
        strain."""
        apart = difference(self.positions, self.graph.senders, self.graph.receivers, dim=0)
        vectors = apart + self.offsets
        if self.strain is None:
            return vectors
        strain = gather(self.strain, self.edge_structures, dim=0)
        # A matrix product would have 16 bits under autocast.
        return vectors + (vectors.unsqueeze(-1) * strain).sum(1)

    def replaced(
        self, *, positions: Tensor | None = None, strain: Tensor | None = None
    ) -> Structures:
        """The same atoms with the same edges at other positions, or with a strain."""
        other = copy.copy(self)
        if positions is not None:
            check_tensor("positions", positions)
            if positions.dtype != self.positions.dtype:
                raise TypeError(
                    f"positions: expected {self.positions.dtype}, as the structures are, got {positions.dtype}; call "
                    "`structures.to(dtype=...)`"
                )
            if positions.shape != self.positions.shape:
                raise ValueError(
                    f"positions: expected {list(self.positions.shape)}, got {list(positions.shape)}"
                )
            other.positions = positions
        if strain is not None:
            _check_shape("strain", strain, self.count, 3, 3)
            other.strain = strain
        return other

    def to(
        self, device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> Structures:
        """The structures on another device, or with another element type of positions: float32 or float64."""
        if dtype not in (None, *_TYPES):
            raise TypeError(f"dtype: expected torch.float32 or torch.float64, got {dtype!r}")
        other = copy.copy(self)
        for name in ("positions", "cell", "offsets", "strain"):
            own = getattr(self, name)
            setattr(other, name, None if own is None else own.to(device=device, dtype=dtype))
        if device is not None:
            other.species, other.graph = self.species.to(device), self.graph.to(device)
            other.structures = self.structures.to(device)
            other.edge_structures = self.edge_structures.to(device)
        return other

    def __repr__(self) -> str:
        return (
            f"Structures({self.count} structures, {self.atom_count} atoms, {self.edge_count} edges, {self.positions.dtype}, "
            f"on {self.positions.device})"
        )


def check_structures(given: Any) -> None:
    """Raises unless it is a batch of structures."""
    if not isinstance(given, Structures):
        raise TypeError(
            f"structures: expected flashcliff.atoms.Structures, got {type(given).__name__}"
        )


def _check_positions(positions: Any) -> None:
    if not isinstance(positions, Tensor) or positions.dtype not in _TYPES:
        got = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
        raise TypeError(f"positions: expected a tensor of float32 or float64, got {got}")
    if positions.dim() != 2 or positions.shape[1] != 3:
        raise ValueError(f"positions: expected [atoms, 3], got {list(positions.shape)}")


def _check_integers(name: str, given: Any) -> None:
    check_tensor(name, given)
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise TypeError(f"{name}: expected integers, got {given.dtype}")


def _check_alike(parts: Sequence[Structures]) -> None:
    """Raises unless all batches have one element type, and are on one device."""
    first = parts[0].positions
    for part in parts[1:]:
        own = part.positions
        if own.dtype != first.dtype:
            raise TypeError(
                f"stack: expected batches of one element type, got {first.dtype} and {own.dtype}; call `structures.to(dtype=...)`"
            )
        if own.device != first.device:
            raise RuntimeError(
                f"stack: expected batches on one device, got {first.device} and {own.device}; call `structures.to(device)`"
            )


def _check_shape(name: str, tensor: Any, *shape: int) -> None:
    check_tensor(name, tensor)
    if tuple(tensor.shape) != shape:
        raise ValueError(f"{name}: expected {list(shape)}, got {list(tensor.shape)}")


def _elements(species: Tensor) -> int:
    if not len(species):
        return 0
    low, high = (int(own) for own in species.aminmax())
    if low < 0:
        raise ValueError(f"species: expected numbers from 0 on, got {low}")
    return high + 1


_TYPES = torch.float32, torch.float64
"""The types of positions."""
FAR = 1e4
"""The length of edges that fill a batch: longer than any cut-off."""


def _filling(parts: Sequence[Structures], atoms: int, edges: int) -> Structures:
    """One structure of the atoms that are missing, where so many edges are."""
    first = parts[0]
    atoms = atoms - sum(part.atom_count for part in parts)
    if atoms < 1 or edges < 0:
        raise ValueError(
            f"stack: expected fewer atoms and not more edges than the batch shall have, got {1 - atoms} and {max(-edges, 0)} too many"
        )
    none = first.species.new_zeros(2, 0, dtype=torch.int64)
    return Structures(first.positions.new_zeros(atoms, 3), first.species.new_zeros(atoms), none)


# A tree of tensors

_TENSORS = ("positions", "species", "cell", "offsets", "strain")
_LISTS = ("targets", "starts", "order")


def _relations(structures: Structures) -> list[Relation]:
    graph = structures.graph
    return [graph.receivers, graph.senders, structures.structures, structures.edge_structures]


def _flatten(structures: Structures) -> tuple[list[Any], tuple[int, ...]]:
    relations = _relations(structures)
    leaves = [getattr(structures, name) for name in _TENSORS]
    leaves += [getattr(own, name) for own in relations for name in _LISTS]
    return leaves, tuple(own.count for own in relations)


def _unflatten(leaves: Any, counts: tuple[int, ...]) -> Structures:
    following = iter(leaves)
    found = object.__new__(Structures)
    # A graph serves batches of any elements.
    found.elements = 0
    for name in _TENSORS:
        setattr(found, name, next(following))
    relations = []
    for count in counts:
        own = object.__new__(Relation)
        own.count = count
        for name in _LISTS:
            setattr(own, name, next(following))
        relations.append(own)
    found.graph = object.__new__(Graph)
    found.graph.receivers, found.graph.senders, found.structures, found.edge_structures = relations
    return found


pytree.register_pytree_node(Structures, _flatten, _unflatten)
