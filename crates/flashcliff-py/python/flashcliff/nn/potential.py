"""A potential: energies of atoms by their neighbours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.nn import Parameter

from .._ops import checks
from ..algebra import Algebra
from ..graphs import Graph, messages, segment_sum
from ..operators import Multivector, PerChannel, PerItem, Scalar, operator
from ._module import CliffordModule, check_count, check_features
from .linear import MVLinear
from .silu import MVSiLU
from .transformer.geometry import without_autocast

if TYPE_CHECKING:
    from ..atoms import Structures

SPACE = Algebra(3, 0, 0)
RADIAL = 8
"""The number of radial functions: that of blades, in whose places they are computed."""
_ROOT = math.sqrt(3)


class Potential(torch.nn.Module):
    r"""Energies of structures of atoms: messages between neighbours over Cl(3,0) with rank-2 tensors beside the multivectors.

    ::

        A_i  = z_i (sum over edges j -> i of R_0(r) s_j (1, u, U))    scalars, vectors, tensors
        x_i  = W (scalars and vectors of A_i),  T_i = tensors of A_i  multivectors and tensors of an atom
        x_i += W (sum over edges j -> i of (R_l(r) (1 + u)) (W x_j))  messages: geometric products, from the second layer on
        x_i += W silu((W x_i) * (W x_i) + T_i : W T_i + (W T_i) . (W x_i))
        E    = sum over atoms of scale_i net(scalars of x_i) + shift_i

    ``u`` is the unit vector of an edge, ``U = u u^T - 1/3``, ``R`` a network of Chebyshev's polynomials of the distance times a
    smooth cut-off, ``s`` and ``z`` embeddings of the elements of sender and receiver, ``W`` linear maps, one for each grade,
    ``*`` the geometric product with a weight for each path, ``silu`` the gate of :class:`MVSiLU`. Sums over edges are divided by
    the root of the mean number of neighbours.

    **Why tensors.** The geometric product of two vectors is a scalar and a bivector: it has no symmetric traceless part, of
    angular momentum 2. An energy of three atoms with ``cos^2`` of their angle, such as Stillinger and Weber's, needs that part of
    a sum over neighbours: products of two sums, of scalars and vectors, give only ``1`` and ``cos``. The tensor
    ``T = sum of R U`` has it: ``T : T`` is a sum over pairs of neighbours of ``cos^2 - 1/3``, and ``T . v`` turns vectors. It is
    what a sum of reflections in the edges adds: ``sum of R u v u = 2 T . v - (sum of R / 3) v``.

    **What holds.** Energies are invariant under rotations, reflections, translations and permutations of atoms; they add up over
    structures that are further apart than the cut-off. Energies and forces are continuous with their first derivatives when an
    atom crosses the cut-off. All maps are without biases, so an atom without neighbours has its ``shift`` as energy and no force.
    No norms are used: lengths have a kink at 0, which the vectors of symmetric sites are.

    Derivatives of every order exist, so forces can be trained (:func:`flashcliff.atoms.derivatives`). Sums have a fixed order:
    the same bits in every run. A pass waits for nothing, so whole steps can be captured. Elements are float32 or float64, the
    same for positions and for parameters, also under autocast: energies and positions lose too much in 16 bits.

    Shapes:
        - the energies ``[structures]``
        - ``shift`` and ``scale`` ``[elements]``: buffers, which start at 0 and 1

    Args:
        numbers: the atomic numbers of the elements; ``species`` of structures are places in this list.
        cutoff: the distance beyond which atoms do not see each other, in the unit of positions.
        channels: channels of atoms.
        layers: the number of layers, at least 1. Each one after the first lets an atom see the neighbours of its neighbours.
        hidden: the width of the network of radial functions and of the one that gives energies.
        neighbours: the mean number of neighbours, by whose root sums are divided.

    Source: sums over neighbours with radial functions and angular momentum as in ACE and MACE (arXiv 2206.07697); polynomials of
    Chebyshev as in moment tensor potentials (arXiv 1512.06054); the cut-off of DimeNet (arXiv 2003.03123); messages of CGENN (arXiv
    2305.11141); tensors of rank 2 beside multivectors as in CliffordSTF.

    Example:
        >>> import torch
        >>> import flashcliff
        >>> from flashcliff import nn
        >>> import flashcliff.atoms
        >>> structures = flashcliff.atoms.Structures(
        ...     torch.tensor([[0.0, 0.0, 0.0], [0.0, 0.0, 1.1]]),
        ...     species=torch.tensor([0, 1]),
        ...     edge_index=torch.tensor([[0, 1], [1, 0]]),
        ... )
        >>> nn.Potential([1, 8], cutoff=4.0)(structures).shape
        torch.Size([1])
    """

    numbers: tuple[int, ...]
    senders: Parameter
    receivers: Parameter
    shift: Tensor
    scale: Tensor

    def __init__(
        self,
        numbers: Iterable[int],
        cutoff: float,
        channels: int = 16,
        layers: int = 2,
        hidden: int = 32,
        neighbours: float = 16.0,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.numbers = _elements(numbers)
        self.channels = check_features("channels", channels)
        self.layer_count = check_features("layers", layers)
        self.hidden = check_features("hidden", hidden)
        self.neighbours = checks.positive("neighbours", neighbours)
        self.cutoff = checks.positive("cutoff", cutoff)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        elements = len(self.numbers)
        self.senders, self.receivers = (
            Parameter(torch.empty(elements, channels, **made)) for _ in range(2)
        )
        self.radial = _network(RADIAL, hidden, channels * layers, **made)
        self.embedding = MVLinear(SPACE, channels, channels, False, grades=(0, 1), **made)
        self.messages = torch.nn.ModuleList(_Message(channels, **made) for _ in range(layers - 1))
        self.updates = torch.nn.ModuleList(_Update(channels, **made) for _ in range(layers))
        self.energy = _network(channels, hidden, 1, **made)
        self.register_buffer("shift", torch.zeros(elements, **made))
        self.register_buffer("scale", torch.ones(elements, **made))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the embeddings of elements anew; modules within keep their parameters."""
        for own in (self.senders, self.receivers):
            torch.nn.init.normal_(own)

    def forward(self, structures: Structures) -> Tensor:
        """The energy of each structure, ``[structures]``.

        Args:
            structures: atoms with all edges that are shorter than the cut-off; longer ones change nothing.

        Raises:
            TypeError: positions and parameters have other element types.
            ValueError: an atom has a species that the potential does not know; within captured steps this is not checked, and such an
                atom has no energy.
        """
        _check_structures(structures)
        if structures.positions.dtype != self.senders.dtype:
            raise TypeError(
                f"positions: expected {self.senders.dtype}, as the parameters are, got {structures.positions.dtype}; "
                "call `structures.to(dtype=...)`"
            )
        if structures.elements > len(self.numbers):
            raise ValueError(
                f"species: expected numbers below {len(self.numbers)}, the elements {list(self.numbers)}, got {structures.elements - 1}"
            )
        with without_autocast(structures.positions):
            elements = _one_hot(structures.species, len(self.numbers), self.senders.dtype)
            own = self._of_atoms(structures, elements)
            energies = own * (elements @ self.scale) + elements @ self.shift
            return segment_sum(energies, structures.structures, dim=0)

    def _of_atoms(self, structures: Structures, elements: Tensor) -> Tensor:
        """The energies of atoms before scale and shift, ``[atoms]``."""
        graph = structures.graph
        vectors = (structures.vectors() / self.cutoff).T.unsqueeze(-1)
        radial, angular = _functions(vectors)  # [8, edges, 1]
        weights = self.radial(radial.squeeze(-1).T).unsqueeze(0)
        first, *later = weights.chunk(self.layer_count, dim=-1)
        root = 1 / math.sqrt(self.neighbours)
        senders = (elements @ self.senders).unsqueeze(0)
        ends = "edges", "edges", "senders"
        counts, directions = messages(_neighbourhood, graph, angular, first, senders, ends=ends)
        receivers = root * (elements @ self.receivers)
        directions = directions * receivers
        x = self.embedding(torch.cat([counts * receivers, directions[:3]]))
        x = torch.cat([x, x.new_zeros(x.shape)])
        x = self.updates[0](x, directions)
        for own, message, update in zip(later, self.messages, self.updates[1:]):  # type: ignore[arg-type]
            x = update(message(x, angular[:3], own, graph, root), directions)
        energies: Tensor = self.energy(x[0])
        return energies.squeeze(-1)

    def species_of(self, numbers: Iterable[int]) -> Tensor:
        """The species of atoms, ``[atoms]`` of int64, by their atomic numbers.

        Raises:
            TypeError: ``numbers`` are no integers.
            ValueError: the potential does not know an element.
        """
        places = {number: at for at, number in enumerate(self.numbers)}
        given = checks.integers("numbers", numbers, "atomic numbers")
        unknown = sorted(set(given) - set(places))
        if unknown:
            raise ValueError(
                f"numbers: expected elements of the potential, {list(self.numbers)}, got {unknown}"
            )
        return torch.tensor([places[number] for number in given], dtype=torch.int64)

    @torch.no_grad()
    def standardise(
        self, structures: Structures, energies: Tensor, forces: Tensor | None = None
    ) -> None:
        """Sets ``shift`` to the energies of elements that fit the data best, and ``scale`` to the size of forces, or of what is
        left of energies.

        Args:
            structures: all structures of the training data.
            energies: ``[structures]``.
            forces: ``[atoms, 3]``.

        Raises:
            TypeError: energies or forces are no tensors of floating-point numbers.
            ValueError: they have other shapes, or some are not finite.
        """
        _check_structures(structures)
        _check_data("energies", energies, (structures.count,))
        if forces is not None:
            _check_data("forces", forces, (structures.atom_count, 3))
        elements = _one_hot(structures.species, len(self.numbers), torch.float64)
        counts = segment_sum(elements, structures.structures, dim=0)
        # The smallest solution, if compositions do not tell elements apart.
        shift = torch.linalg.pinv(counts) @ energies.double()
        size = counts.sum(-1).clamp_min(1)
        left = (energies.double() - counts @ shift) / size if forces is None else forces.double()
        scale = left.square().mean().sqrt()
        self.shift.copy_(shift)
        self.scale.fill_(float(scale) if scale > 0 else 1.0)

    def extra_repr(self) -> str:
        return (
            f"numbers={list(self.numbers)}, cutoff={self.cutoff:g}, channels={self.channels}, layers={self.layer_count}, "
            f"neighbours={self.neighbours:g}"
        )


def _blades(like: Multivector, values: Sequence[Scalar]) -> Multivector:
    """Eight numbers in the places of the blades."""
    return Multivector(SPACE, like._program, [own._value for own in values], range(4))


@operator(SPACE)
def _functions(vector: Multivector.of(1)):  # type: ignore[valid-type]
    """Eight functions of the length of a vector, in cut-offs, and eight of its direction: its unit vector and five of ``u u^T - 1/3``.

    The former are ``T_n(2 d - 1)``, Chebyshev's polynomials of the distance, times the cut-off
    ``(1 - d)^3 (1 + 3 d + 6 d^2 + 10 d^3 + 15 d^4 + 21 d^5)``. It is 1 at 0, with five derivatives of 0, and 0 at 1, with two;
    this form loses no digits near 1, and is exactly 0 there.
    """
    x, y, z = (Scalar(vector._program, value) for value in vector._values)
    length = (x * x + y * y + z * z).sqrt()
    d = length.minimum(1.0)
    near = 15 + 21 * d
    for factor in (10, 6, 3, 1):
        near = factor + d * near
    far = 1 - d
    cutoff = far * far * far * near
    argument = 2 * d - 1
    radial = [cutoff, cutoff * argument]
    while len(radial) < RADIAL:
        radial.append(2 * argument * radial[-1] - radial[-2])
    x, y, z = x / length, y / length, z / length
    xx, yy = x * x, y * y
    squares = [(xx - yy) * (_ROOT / 2), z * z - (xx + yy) / 2]
    quadrics = [x * y * _ROOT, y * z * _ROOT, z * x * _ROOT, *squares]
    return _blades(vector, radial), _blades(vector, [x, y, z, *quadrics])


def _matrix(functions: Multivector) -> list[list[Scalar]]:
    """The symmetric matrix without a trace that the last five functions of directions are, times 3/2."""
    xy, yz, zx, across, along = (
        Scalar(functions._program, value) for value in functions._values[3:]
    )
    half, xy, yz, zx, across = along / 2, *(own * (_ROOT / 2) for own in (xy, yz, zx, across))
    return [[across - half, xy, zx], [xy, -across - half, yz], [zx, yz, along]]


@operator(SPACE)
def _products(
    left: Multivector,
    right: Multivector,
    tensors: Multivector,
    others: Multivector,
    weight: PerChannel("paths"),  # type: ignore[valid-type]
):
    """The weighted geometric product of two multivectors; with ``S : T`` on its scalar and ``T v`` on its vector, where ``S`` and ``T`` are
    the tensors among functions of directions, and ``v`` the vector of ``left``."""
    one, two = (_matrix(own) for own in (tensors, others))
    rows = range(3)
    pairs = [one[i][j] * two[i][j] for i in rows for j in rows]
    vector = [Scalar(left._program, value) for value in left._values[1:4]]
    turned = [sum((two[i][j] * vector[j] for j in rows[1:]), two[i][0] * vector[0]) for i in rows]
    values = [sum(pairs[1:], pairs[0]), *turned]
    return left.weighted(right, weight) + Multivector(
        SPACE, left._program, [own._value for own in values], (0, 1)
    )


@operator(SPACE)
def _neighbourhood(functions: Multivector, weight: PerItem(), sender: PerItem()):  # type: ignore[valid-type]
    """A weight of an edge, and the functions of its direction times the weight."""
    own = weight * sender
    return own, own * functions


@operator(SPACE)
def _along(direction: Multivector.of(1), weight: PerItem(), x: Multivector):  # type: ignore[valid-type]
    """The weighted product of the direction of an edge, plus 1, with the multivector of its sender."""
    return weight * (x + direction * x)


class _Message(CliffordModule):
    """Adds to multivectors of atoms the products of edges with multivectors of their senders."""

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__(SPACE)
        self.before = MVLinear(SPACE, channels, channels, False, **made)
        self.after = MVLinear(SPACE, channels, channels, False, **made)

    def forward(
        self, x: Tensor, directions: Tensor, weights: Tensor, graph: Graph, scale: float
    ) -> Tensor:
        ends = "edges", "edges", "senders"
        found = messages(_along, graph, directions, weights, self.before(x), ends=ends)
        return torch.add(x, self.after(found), alpha=scale)


class _Update(CliffordModule):
    """Adds to multivectors of atoms their products with themselves and with the tensors, behind a gate."""

    def __init__(self, channels: int, **made: Any) -> None:
        super().__init__(SPACE)
        self.left = MVLinear(SPACE, channels, channels, False, **made)
        self.right = MVLinear(SPACE, channels, channels, False, **made)
        self.tensors = torch.nn.Linear(channels, channels, bias=False, **made)
        self.weight = Parameter(torch.empty(channels, SPACE.path_count, **made))
        self.gate = MVSiLU(SPACE, channels, **made)
        self.after = MVLinear(SPACE, channels, channels, False, **made)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(SPACE.grade_count))

    def forward(self, x: Tensor, directions: Tensor) -> Tensor:
        found = _products(
            self.left(x), self.right(x), directions, self.tensors(directions), self.weight
        )
        added: Tensor = self.after(self.gate(found))
        return x + added


def _network(start: int, hidden: int, end: int, **made: Any) -> torch.nn.Sequential:
    """A network of one hidden layer without biases, which has the value 0 at 0."""
    layers = (
        torch.nn.Linear(start, hidden, bias=False, **made),
        torch.nn.SiLU(),
        torch.nn.Linear(hidden, end, bias=False, **made),
    )
    for layer in layers[::2]:
        torch.nn.init.normal_(layer.weight, std=1 / math.sqrt(layer.in_features))  # type: ignore[arg-type]
    return torch.nn.Sequential(*layers)


def _check_structures(given: Any) -> None:
    # The module of structures imports this one.
    if not isinstance(getattr(given, "positions", None), Tensor):
        raise TypeError(
            f"structures: expected flashcliff.atoms.Structures, got {type(given).__name__}"
        )


def _check_data(name: str, given: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(given, Tensor) or not given.is_floating_point():
        got = given.dtype if isinstance(given, Tensor) else type(given).__name__
        raise TypeError(f"{name}: expected a tensor of floating-point numbers, got {got}")
    if tuple(given.shape) != shape:
        raise ValueError(f"{name}: expected {list(shape)}, got {list(given.shape)}")
    if not given.isfinite().all():
        raise ValueError(f"{name}: expected finite numbers, got others")


def _one_hot(species: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """``[atoms, elements]``. By products with it embeddings have gradients without atomics, and nothing waits for the GPU."""
    places = torch.arange(count, device=species.device)
    return (species.unsqueeze(-1) == places).to(dtype)


def _elements(numbers: Iterable[int]) -> tuple[int, ...]:
    if not isinstance(numbers, Iterable):
        raise TypeError(f"numbers: expected atomic numbers as an iterable, got {numbers!r}")
    found = tuple(check_count("numbers", number) for number in numbers)
    if not found or len(set(found)) != len(found):
        raise ValueError(f"numbers: expected different atomic numbers, at least one, got {found}")
    return found
