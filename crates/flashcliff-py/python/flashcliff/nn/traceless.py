"""Symmetric traceless tensors of rank 2 and 3 beside multivectors."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import combinations, permutations
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor
from torch.nn import Parameter

from .. import functional as F
from .._ops import checks
from .._ops.kept import beside, for_later_calls
from ..algebra import Algebra
from ..operators import Multivector, Operator, PerChannel, Scalar, operator
from ._module import AlgebraLike, CliffordModule, check_features, joined
from .embedding import select_grade
from .linear import MVLinear
from .silu import MVSiLU

_RANKS = 2, 3
_SMALL = 1e-12
"""Numbers of tables below this are rounding."""

Term = tuple[float, int, int]
"""A product of a number and the components of two tensors."""
Table = tuple[tuple[Term, ...], ...]
"""For each component of a result its terms."""


class SymmetricTraceless:
    r"""Symmetric traceless tensors of rank 2 and 3 in Euclidean space, and their products with vectors, bivectors and each other.

    The geometric product of two vectors is a scalar and a bivector. The third part of their product is a symmetric traceless tensor of
    rank 2, of angular momentum 2, which no multivector holds:

    ::

        u_i v_j = (u . v) delta_ij / dim + (u_i v_j - u_j v_i) / 2 + (the tensor)_ij

    A tensor is stored by its components in an orthonormal basis, so squares of components add up to the square of the tensor. In three
    dimensions these are 5 numbers of rank 2 and 7 of rank 3, and a rotation mixes components of one rank only. Components come first, as
    blades do: ``[components, *batch, channels]``. Vectors and bivectors are the blades of their grade, in order.

    All products commute with rotations and reflections. They have derivatives of every order. In three dimensions each product is one
    operator, compiled at its first call on a GPU; in others the products are composed of operations of PyTorch.

    Maps of channels are :class:`TracelessLinear`. :class:`TracelessLayer` couples tensors and multivectors.

    Args:
        dim: the dimension of space, at least 3.

    Source: Cartesian tensors as in CliffordSTF; the expansion is that of angular momenta 2 and 3 in ACE and MACE (arXiv 2206.07697).

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> tensors = nn.SymmetricTraceless(3)
        >>> u, v = torch.randn(2, 3, 32, 4)
        >>> t = tensors.outer(u, v)
        >>> t.shape, tensors.raised(t, u).shape, tensors.dot(t, u).shape
        (torch.Size([5, 32, 4]), torch.Size([7, 32, 4]), torch.Size([3, 32, 4]))
    """

    dim: int
    sizes: dict[int, int]
    """The components of each rank."""

    def __init__(self, dim: int = 3) -> None:
        self.dim = dim = checks.integer("dim", dim)
        # In a plane both ranks have two components, so nothing could tell them apart.
        if dim < 3:
            raise ValueError(f"dim: expected at least 3, got {dim}")
        # Known from here on: a trace of a call would make them again.
        self._bases = {rank: _basis(dim, rank) for rank in _RANKS}
        self.sizes = {rank: len(basis) for rank, basis in self._bases.items()}
        self._own = _products_of(dim)

    def __reduce__(self) -> Any:
        # Operators are made again.
        return SymmetricTraceless, (self.dim,)

    def basis(self, rank: int) -> Tensor:
        """The orthonormal basis of a rank in float64: ``[components, dim, dim]`` or ``[components, dim, dim, dim]``."""
        return self._bases[self._rank("rank", rank)].clone()

    def full(self, t: Tensor) -> Tensor:
        """All components of tensors ``[components, *batch, channels]``: ``[dim, dim, *batch, channels]``, or with three axes of ``dim``."""
        basis = self._beside(self._of("t", t), t)
        return torch.tensordot(basis, t, ([0], [0]))

    def part(self, full: Tensor, rank: int = 2) -> Tensor:
        """The symmetric traceless part of any tensor, ``[components, *batch, channels]``.

        Args:
            full: ``[dim, dim, *batch, channels]``, or with three axes of ``dim``.
            rank: the number of axes of ``dim``, 2 or 3.
        """
        rank = self._rank("rank", rank)
        if full.dim() < rank or tuple(full.shape[:rank]) != (self.dim,) * rank:
            expected = ", ".join([str(self.dim)] * rank)
            raise ValueError(f"full: expected [{expected}, *batch, channels], got {list(full.shape)}")
        basis = self._beside(rank, full)
        axes = list(range(rank))
        return torch.tensordot(basis, full, ([own + 1 for own in axes], axes))

    def outer(self, u: Tensor, v: Tensor) -> Tensor:
        """The tensor of rank 2 of two vectors: the symmetric traceless part of ``u_i v_j``, ``[components, *batch, channels]``."""
        return self._call("outer", u, v)

    def raised(self, t: Tensor, v: Tensor) -> Tensor:
        """The tensor of rank 3 of a tensor of rank 2 and a vector, ``[components, *batch, channels]``: the symmetric traceless part of
        ``t_ij v_k``.

        The tensor of three vectors is ``raised(outer(u, v), w)``.
        """
        self._of("t", t, 2)
        return self._call("raised", t, v)

    def dot(self, t: Tensor, v: Tensor) -> Tensor:
        """``t_ij v_j``, a vector ``[dim, *batch, channels]``; of rank 3 ``t_ijk v_k``, a tensor of rank 2."""
        return self._call(f"dot{self._of('t', t)}", t, v)

    def double_dot(self, s: Tensor, t: Tensor) -> Tensor:
        """``s_ij t_ij``, a scalar ``[1, *batch, channels]``; of ``s`` of rank 3 ``s_ijk t_jk``, a vector ``[dim, *batch, channels]``."""
        self._of("t", t, 2)
        return self._call(f"double_dot{self._of('s', s)}", s, t)

    def triple_dot(self, s: Tensor, t: Tensor) -> Tensor:
        """``s_ijk t_ijk`` of tensors of rank 3, a scalar ``[1, *batch, channels]``."""
        self._of("s", s, 3)
        return self._call("triple_dot", s, t)

    def product(self, s: Tensor, t: Tensor) -> Tensor:
        """The symmetric traceless part of the matrix product ``s_ij t_jk`` of tensors of rank 2, ``[components, *batch, channels]``."""
        self._of("s", s, 2)
        return self._call("product", s, t)

    def commutator(self, s: Tensor, t: Tensor) -> Tensor:
        """The bivector ``[bivectors, *batch, channels]`` of the antisymmetric part of ``s_ij t_jk``, for tensors of rank 2.

        Its component of ``e_ik`` is ``s_ij t_jk - s_kj t_ji``, as that of the exterior product of two vectors is ``u_i v_k - u_k v_i``.
        """
        self._of("s", s, 2)
        return self._call("commutator", s, t)

    def turned(self, b: Tensor, t: Tensor) -> Tensor:
        """The change of a tensor of rank 2 by a small rotation in the plane of a bivector, ``[components, *batch, channels]``:
        ``b_ij t_jk - t_ij b_jk``.
        """
        self._of("t", t, 2)
        return self._call("turned", b, t)

    def _beside(self, rank: int, like: Tensor) -> Tensor:
        """The basis of a rank in the type of a tensor and on its device."""
        if torch.compiler.is_compiling() or isinstance(like, FakeTensor):
            return beside(self._bases[rank], like).to(like)
        # A copy from the CPU in each call would wait for the GPU, and no CUDA graph could have it.
        return _basis_on(self.dim, rank, like.dtype, like.device)

    def _rank(self, name: str, rank: Any) -> int:
        rank = checks.integer(name, rank)
        if rank not in _RANKS:
            raise ValueError(f"{name}: expected 2 or 3, got {rank}")
        return rank

    def _of(self, name: str, t: Tensor, rank: int | None = None) -> int:
        """The rank of tensors, by the number of their components."""
        size = t.shape[0] if t.dim() else 0
        found = rank if rank is not None and size == self.sizes[rank] else None
        if rank is None:
            found = next((own for own in _RANKS if self.sizes[own] == size), None)
        if found is None:
            sizes = " or ".join(str(self.sizes[own]) for own in ([rank] if rank else _RANKS))
            raise ValueError(f"{name}: expected [{sizes}, *batch, channels], got {list(t.shape)}")
        return found

    def _call(self, name: str, x: Tensor, y: Tensor) -> Tensor:
        own = self._own[name]
        for tensor, size in zip((x, y), own.sizes):
            if tensor.dim() < 2 or tensor.shape[0] != size:
                raise ValueError(
                    f"{name.rstrip('23')}: expected [{size}, *batch, channels], got {list(tensor.shape)}"
                )
        if x.shape[1:] != y.shape[1:]:
            batch = torch.broadcast_shapes(x.shape[1:], y.shape[1:])
            x, y = (_expanded(tensor, batch) for tensor in (x, y))
        return own(x, y)[0]

    def __repr__(self) -> str:
        return f"SymmetricTraceless({self.dim})"


class TracelessLinear(torch.nn.Linear):
    """A linear map of the channels of tensors, with one matrix for all components of a rank. It has no bias, which no direction could have.

    Shapes:
        - input ``[components, *batch, in_features]``
        - output ``[components, *batch, out_features]``
        - ``weight`` ``[out_features, in_features]``; starts normal with std ``1 / sqrt(in_features)``

    Args:
        in_features: channels of the input.
        out_features: channels of the output.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> nn.TracelessLinear(4, 16)(torch.randn(5, 32, 4)).shape
        torch.Size([5, 32, 16])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        sizes = check_features("in_features", in_features), check_features("out_features", out_features)
        super().__init__(*sizes, bias=False, device=device, dtype=dtype)

    def reset_parameters(self) -> None:
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(self.in_features))

    def forward(self, t: Tensor) -> Tensor:
        """From ``t`` ``[components, *batch, in_features]`` to ``[components, *batch, out_features]``."""
        return super().forward(t)


class TracelessLayer(CliffordModule):
    r"""Couples multivectors with symmetric traceless tensors of rank 2 and 3, channel by channel between linear maps.

    ::

        l, r = W x, W x;  u, v the vectors of l and r, b the bivector of r
        s2, s3 = W t2, W t3
        X   = l * r + t2 : s2 + t3 : s3 + s2 . u + s3 : t2 + [t2, s2]
        x'  = x + W silu(X)
        t2' = t2 + W g2 (outer(u, v) + s3 . v + product(t2, s2) + turned(b, s2))
        t3' = t3 + W g3 raised(t2, v)

    ``*`` is the geometric product with a weight for each path. Each other product is a product of :class:`SymmetricTraceless`, with a
    weight for each channel. ``silu`` is the gate of :class:`MVSiLU`, and ``g2`` and ``g3`` are sigmoids of linear maps of the scalars of
    ``X``.

    The layer commutes with rotations and reflections. Start with tensors of zeros, or with sums of :meth:`SymmetricTraceless.outer` over
    neighbours.

    Shapes:
        - multivectors ``x`` ``[blades, *batch, channels]``
        - tensors ``t2`` and ``t3`` ``[components, *batch, channels]``, in three dimensions of 5 and 7 components
        - ``path_weight`` ``[channels, paths]``, ``weight`` ``[channels, 10]``; both start normal with std ``1 / sqrt(dim + 1)``

    Args:
        algebra: of a Euclidean space, such as ``flashcliff.Algebra(3, 0, 0)``.
        channels: channels of multivectors and tensors.
        residual: whether results are added to ``x``, ``t2`` and ``t3``.

    Source: tensors of rank 2 and 3 beside multivectors as in CliffordSTF.

    Example:
        >>> import torch
        >>> from flashcliff import nn
        >>> layer = nn.TracelessLayer((3, 0, 0), 4)
        >>> x, t2, t3 = layer(torch.randn(8, 32, 4), torch.zeros(5, 32, 4), torch.zeros(7, 32, 4))
        >>> x.shape, t2.shape, t3.shape
        (torch.Size([8, 32, 4]), torch.Size([5, 32, 4]), torch.Size([7, 32, 4]))
    """

    def __init__(
        self,
        algebra: AlgebraLike,
        channels: int,
        residual: bool = True,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(algebra)
        own = self._algebra
        if own != Algebra(own.dim, 0, 0):
            raise ValueError(f"algebra: expected that of a Euclidean space, got {own!r}")
        self.channels = channels = check_features("channels", channels)
        self.residual = checks.flag("residual", residual)
        self.tensors = SymmetricTraceless(own.dim)
        self._couplings = _Couplings(own.dim)
        made: dict[str, Any] = {"device": device, "dtype": dtype}
        self.left, self.right = (MVLinear(own, channels, channels, False, **made) for _ in range(2))
        self.rank2, self.rank3 = (TracelessLinear(channels, channels, **made) for _ in range(2))
        self.path_weight = Parameter(torch.empty(channels, own.path_count, **made))
        self.weight = Parameter(torch.empty(channels, _MIXED + _TENSORS, **made))
        self.activation = MVSiLU(own, channels, **made)
        self.gates = torch.nn.Linear(channels, 2 * channels, **made)
        self.after = MVLinear(own, channels, channels, **made)
        self.after2, self.after3 = (TracelessLinear(channels, channels, **made) for _ in range(2))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for own in (self.path_weight, self.weight):
            torch.nn.init.normal_(own, std=1 / math.sqrt(self._algebra.grade_count))

    def forward(self, x: Tensor, t2: Tensor, t3: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The multivectors ``[blades, *batch, channels]`` and the tensors ``[components, *batch, channels]`` of both ranks, coupled.

        Args:
            x: multivectors.
            t2: tensors of rank 2.
            t3: tensors of rank 3.

        Raises:
            ValueError: a tensor has another shape.
        """
        for rank, own in ((2, t2), (3, t3)):
            expected = [self.tensors.sizes[rank], *x.shape[1:]]
            if list(own.shape) != expected:
                raise ValueError(f"t{rank}: expected {expected}, got {list(own.shape)}")
        algebra = self._algebra
        left, right, s2, s3 = self.left(x), self.right(x), self.rank2(t2), self.rank3(t3)
        u, v = (select_grade(own, 1, algebra) for own in (left, right))
        mixed, of_tensors = (own.contiguous() for own in self.weight.split([_MIXED, _TENSORS], -1))
        product = F.steerable_product(left, right, self.path_weight, algebra=algebra)
        # Tensors add to the scalar, the vector and the bivector.
        (low,) = self._couplings.of_multivectors(u, t2, s2, t3, s3, mixed)
        found = torch.cat([product[: low.shape[0]] + low, product[low.shape[0] :]])
        b = select_grade(right, 2, algebra)
        new2, new3 = self._couplings.of_tensors(u, v, b, t2, s2, s3, of_tensors)
        g2, g3 = self.gates(found[0]).sigmoid().chunk(2, dim=-1)
        added = self.after(self.activation(found)), self.after2(new2 * g2), self.after3(new3 * g3)
        if not self.residual:
            return added
        return x + added[0], t2 + added[1], t3 + added[2]

    def extra_repr(self) -> str:
        return joined(
            f"{self.algebra!r}, channels={self.channels}", "" if self.residual else "residual=False"
        )


# Bases


@lru_cache
@for_later_calls()
def _basis(dim: int, rank: int) -> Tensor:
    """The orthonormal basis: tensors without equal indices, and mixtures of tensors with equal indices so that no trace is left."""
    found: list[Tensor] = []
    for indices in combinations(range(dim), rank):
        found.append(_symmetric(dim, indices))
    if rank == 2:
        squares = [_symmetric(dim, (i, i)) for i in range(dim)]
        found += _without_sum(squares)
    else:
        for i in range(dim):
            others = [_symmetric(dim, (i, j, j)) for j in range(dim) if j != i]
            found += _without_sum(others)
            # The trace of the cube is 1, that of each other one 1 / sqrt(3).
            own = (dim - 1) / math.sqrt(3) * _symmetric(dim, (i, i, i)) - _total(others)
            found.append(own / own.norm())
    return torch.stack(found)


@lru_cache
@for_later_calls()
def _basis_on(dim: int, rank: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    return _basis(dim, rank).to(device, dtype)


def _symmetric(dim: int, indices: tuple[int, ...]) -> Tensor:
    """The symmetric tensor of unit norm with one component, but for its permutations."""
    found = torch.zeros((dim,) * len(indices), dtype=torch.float64)
    for own in permutations(indices):
        found[own] = 1.0
    return found / found.norm()


def _without_sum(tensors: Sequence[Tensor]) -> list[Tensor]:
    """Orthonormal combinations of orthonormal tensors, whose factors add up to 0."""
    found = []
    for at in range(1, len(tensors)):
        own = _total(tensors[:at]) - at * tensors[at]
        found.append(own / own.norm())
    return found


# Products, as tables of numbers


@lru_cache
@for_later_calls()
def _planes(dim: int) -> Tensor:
    """The antisymmetric matrices of the bivectors ``e_ij`` with ``i < j``."""
    found = torch.zeros(dim * (dim - 1) // 2, dim, dim, dtype=torch.float64)
    for own, (i, j) in zip(found, combinations(range(dim), 2)):
        own[i, j], own[j, i] = 1.0, -1.0
    return found


_FORMULAS = {
    "outer": ("2", "aij->aij"),
    "raised": ("32", "aijk,bij->abk"),
    "dot2": ("21", "bij,ai->abj"),
    "dot3": ("32", "bijk,aij->abk"),
    "double_dot2": ("22", "bij,cij->bc"),
    "double_dot3": ("321", "bijk,cjk,ai->abc"),
    "triple_dot": ("33", "bijk,cijk->bc"),
    "product": ("222", "bij,cjk,aik->abc"),
    "commutator": ("22b", "bij,cjk,aik->abc"),
    "turned": ("b22", "bij,cjk,aik->abc"),
}
"""The numbers of products by bases: of rank 1, 2 and 3, and of bivectors. Indices are ``a`` of the result, ``b`` and ``c`` of tensors."""


def _numbers(dim: int, name: str) -> Tensor:
    """The numbers of a product, ``[result, x, y]``."""
    known = {
        "1": torch.eye(dim, dtype=torch.float64),
        "2": _basis(dim, 2),
        "3": _basis(dim, 3),
        "b": _planes(dim),
    }
    kinds, formula = _FORMULAS[name]
    found = torch.einsum(formula, *(known[kind] for kind in kinds))
    if name == "turned":
        # The matrix product and its transpose.
        found = 2 * found
    return found if found.dim() == 3 else found[None]


@lru_cache
def _table(dim: int, name: str) -> Table:
    rows = []
    for row in _numbers(dim, name).tolist():
        terms = [
            (number, b, c)
            for b, numbers in enumerate(row)
            for c, number in enumerate(numbers)
            if abs(number) > _SMALL
        ]
        rows.append(tuple(terms))
    return tuple(rows)


def _applied(table: Table, x: Sequence[Any], y: Sequence[Any]) -> list[Any]:
    """The components of a product, of symbols or of tensors. Terms with the same number are added up first."""
    found = []
    for terms in table:
        by_number: dict[float, tuple[float, list[Any]]] = {}
        for number, b, c in terms:
            # Equal numbers may differ by rounding.
            _, own = by_number.setdefault(round(abs(number), 12), (abs(number), []))
            product = x[b] * y[c]
            own.append(product if number > 0 else -product)
        parts = [_total(own) * number for number, own in by_number.values()]
        found.append(_total(parts))
    return found


def _expanded(tensor: Tensor, batch: Sequence[int]) -> Tensor:
    """A tensor with the batch and the channels of a result."""
    missing = (1,) * (len(batch) + 1 - tensor.dim())
    return tensor.reshape(tensor.shape[0], *missing, *tensor.shape[1:]).expand(-1, *batch)


def _total(parts: Sequence[Any]) -> Any:
    return sum(parts[1:], parts[0])


# Operators

_COMPILED = 3
"""The dimension in which products are operators. In others tensors have no places in the algebra, or programs grow long."""
_MIXED = 5
"""The weights of what tensors add to multivectors."""
_TENSORS = 5
"""The weights of what multivectors and tensors add to tensors."""


class _Made:
    """A function of the components of tensors: one operator, or operations of PyTorch.

    Args:
        name: the name of the operator.
        dim: the dimension of space.
        function: from lists of components, and from weights, to lists of components.
        sizes: the components of each tensor.
        results: the components of each result.
        weights: the number of weights of a channel.
    """

    def __init__(
        self,
        name: str,
        dim: int,
        function: Callable[..., Any],
        sizes: Sequence[int],
        results: Sequence[int],
        weights: int = 0,
    ) -> None:
        self.function, self.sizes = function, tuple(sizes)
        self.operator: Operator | None = None
        if dim == _COMPILED:
            self.operator = _traced(f"traceless_{name}", function, sizes, results, weights)

    def __call__(self, *given: Tensor) -> Sequence[Tensor]:
        if self.operator is not None:
            found: Any = self.operator(*given)
            return found if isinstance(found, tuple) else (found,)
        count = len(self.sizes)
        parts = [tensor.unbind(0) for tensor in given[:count]]
        weights = [tensor.unbind(-1) for tensor in given[count:]]
        return [torch.stack(components) for components in self.function(*parts, *weights)]


def _traced(
    name: str, function: Callable[..., Any], sizes: Sequence[int], results: Sequence[int], weights: int
) -> Operator:
    """A function of components as one operator. Components lie in the places of blades."""
    algebra = Algebra(_COMPILED, 0, 0)

    def traced(arguments: Sequence[Any]) -> Any:
        tensors, more = arguments[: len(sizes)], arguments[len(sizes) :]
        program = tensors[0]._program
        values = [[Scalar(program, value) for value in own._values] for own in tensors]
        made = [
            Multivector(algebra, program, [value._value for value in own], _PLACES[size])
            for own, size in zip(function(*values, *more), results)
        ]
        return made[0] if len(made) == 1 else tuple(made)

    annotations: dict[str, Any] = {
        f"x{at}": Multivector.of(*_PLACES[size]) for at, size in enumerate(sizes)
    }
    if weights:
        annotations["w"] = PerChannel(weights)
    # An operator reads the names of the arguments of its function.
    scope: dict[str, Any] = {"traced": traced}
    listed = ", ".join(annotations)
    exec(f"def {name}({listed}): return traced([{listed}])", scope)
    scope[name].__annotations__ = annotations
    found: Operator = operator(algebra)(scope[name])
    return found


_PLACES = {1: (0,), 3: (1,), 5: (0, 1, 3), 7: (0, 1, 2)}
"""Grades of Cl(3,0) with so many blades."""


@lru_cache
@for_later_calls()
def _products_of(dim: int) -> dict[str, _Made]:
    """All products of two tensors."""
    found = {}
    for name in _FORMULAS:
        result, *sizes = _numbers(dim, name).shape

        table = _table(dim, name)

        def function(x: Any, y: Any, table: Table = table) -> list[Any]:
            return [_applied(table, x, y)]

        found[name] = _Made(name, dim, function, sizes, [result])
    return found


class _Couplings:
    """What tensors add to multivectors, and what both add to tensors."""

    def __init__(self, dim: int) -> None:
        self.dim = dim
        self.of_multivectors, self.of_tensors = _couplings_of(dim)

    def __reduce__(self) -> Any:
        # Operators are made again.
        return _Couplings, (self.dim,)


@lru_cache
@for_later_calls()
def _couplings_of(dim: int) -> tuple[_Made, _Made]:
    two, three, planes = (len(own) for own in (_basis(dim, 2), _basis(dim, 3), _planes(dim)))
    tables = {name: _table(dim, name) for name in _FORMULAS}

    def of(name: str, x: Any, y: Any) -> list[Any]:
        return _applied(tables[name], x, y)

    def of_multivectors(u: Any, t2: Any, s2: Any, t3: Any, s3: Any, w: Any) -> list[Any]:
        (squares,), (cubes,) = of("double_dot2", t2, s2), of("triple_dot", t3, s3)
        vectors = zip(of("dot2", s2, u), of("double_dot3", s3, t2))
        scalar = squares * w[0] + cubes * w[1]
        vector = [one * w[2] + other * w[3] for one, other in vectors]
        return [[scalar, *vector, *(own * w[4] for own in of("commutator", t2, s2))]]

    def of_tensors(u: Any, v: Any, b: Any, t2: Any, s2: Any, s3: Any, w: Any) -> list[Any]:
        parts = of("outer", u, v), of("dot3", s3, v), of("product", t2, s2), of("turned", b, s2)
        second = [_total([own * w[at] for at, own in enumerate(each)]) for each in zip(*parts)]
        return [second, [own * w[4] for own in of("raised", t2, v)]]

    low = [dim, two, two, three, three], [1 + dim + planes], _MIXED
    high = [dim, dim, planes, two, two, three], [two, three], _TENSORS
    return _Made("multivectors", dim, of_multivectors, *low), _Made("tensors", dim, of_tensors, *high)
