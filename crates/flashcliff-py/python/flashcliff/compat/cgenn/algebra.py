"""CGENN's algebra, a module with tables as buffers."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Sequence
from functools import cache
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad

from ... import _core
from ... import functional as F
from ..._ops import checks, remedies
from ..._ops.kept import beside, for_later_calls
from ..._order import Order, blades_of, order_of
from ...algebra import Algebra

Blades = Tensor | Sequence[int]

# The rows of the buffer of signs.
_ALPHA, _BETA, _GAMMA, _FORM, _ORIENTATION = range(5)

# The rows of the buffer of places.
_SOURCES, _PLACES = range(2)

# Buffers that the state dict does not have.
_OWN = ("_signs", "_order")


class CliffordAlgebra(torch.nn.Module):
    """CGENN's ``CliffordAlgebra``: tables of an algebra, and functions of multivectors ``[...,
    blades]``.

    Names, arguments, results and the state dict (``metric``, ``subspaces``, ``bbo_grades``,
    ``even_grades``, ``odd_grades``, ``cayley``) are CGENN's. The product of full multivectors in
    float32 and float64 is an operator of flashcliff, all other functions are PyTorch's; each can be
    differentiated again. A state dict of another algebra is an error, since the kernels do not read
    the tables.

    The vectors have the order of the metric, whatever it is. flashcliff's kernels take null vectors first, then positive,
    then negative ones. For a metric in another order, products and layers here put the blades in the kernels' order and
    back, with signs; this copies their inputs and outputs. Everything in flashcliff that takes an algebra takes one of
    these whose metric is in the kernels' order. With another order there is an error:
    :func:`flashcliff.compat.cgenn.from_cgenn` converts multivectors for ``flashcliff_algebra``.

    Args:
        metric: the square of each vector: 1, -1 or 0, in any order.

    Raises:
        ValueError: the metric has other numbers.
        UnsupportedError: the metric has more than 8 numbers.

    Source: CGENN's ``algebra/cliffordalgebra.py``.
    """

    metric: Tensor
    """The squares of the vectors, ``[dim]``."""
    subspaces: Tensor
    """The number of blades of each grade, ``[dim + 1]``."""
    bbo_grades: Tensor
    """The grade of each blade, ``[blades]``, as floats."""
    even_grades: Tensor
    """Which blades are even, ``[blades]``."""
    odd_grades: Tensor
    """Which blades are odd, ``[blades]``."""
    cayley: Tensor
    """The factor of blade ``j`` in blade ``i`` times blade ``k``, at ``[i, j, k]``."""
    flashcliff_algebra: Algebra
    """The algebra of flashcliff with this signature. Its vectors are in flashcliff's order."""
    reorders_blades: bool
    """Whether the blades of ``flashcliff_algebra`` have another order."""
    _signs: Tensor
    _order: Tensor

    def __init__(self, metric: Sequence[float] | Tensor) -> None:
        super().__init__()
        self._squares = squares = _squares(metric)
        self.flashcliff_algebra = algebra = _algebra_of(squares)
        self.reorders_blades = not order_of(squares).is_ours
        self.dim = self.num_bases = algebra.dim
        self.n_blades = algebra.blade_count
        self.n_subspaces = algebra.grade_count
        ends = list(itertools.accumulate(_sizes(self.dim), initial=0))
        self.grade_to_slice = [slice(*pair) for pair in itertools.pairwise(ends)]
        with torch.device("cpu"):
            self.grades = torch.arange(self.n_subspaces)
            self.grade_to_index = [torch.arange(s.start, s.stop) for s in self.grade_to_slice]
            self.bbo = _blade_order(self.dim)
        self.register_buffer("metric", torch.as_tensor(metric))
        for name, table in _tables(squares).items():
            if name != "metric":
                floats = torch.get_default_dtype() if table.is_floating_point() else table.dtype
                # This makes a copy, on the device on which tensors are made by default, and fake where these are.
                like = torch.empty(0)
                table = beside(table, like).to(like.device, floats, copy=True)
                self.register_buffer(name, table, persistent=name not in _OWN)

    # These are attributes of flashcliff.Algebra.

    @property
    def signature(self) -> tuple[int, int, int]:
        return self.flashcliff_algebra.signature

    @property
    def name(self) -> str:
        return self.flashcliff_algebra.name

    @property
    def blades(self) -> tuple[str, ...]:
        """The names of the blades: products of flashcliff's vectors in the order of the metric."""
        return _names(self.flashcliff_algebra, order_of(self._squares))

    @property
    def paths(self) -> tuple[tuple[int, int, int], ...]:
        return self.flashcliff_algebra.paths

    @property
    def blade_count(self) -> int:
        return self.n_blades

    @property
    def grade_count(self) -> int:
        return self.n_subspaces

    @property
    def path_count(self) -> int:
        return self.flashcliff_algebra.path_count

    def paths_between(
        self, left: Iterable[int] | None = None, right: Iterable[int] | None = None
    ) -> tuple[tuple[int, int, int], ...]:
        return self.flashcliff_algebra.paths_between(left, right)

    # Products

    def geometric_product(
        self, a: Tensor, b: Tensor, blades: tuple[Tensor, Tensor, Tensor] | None = None
    ) -> Tensor:
        """``a b``. Batch axes are broadcast.

        Args:
            a: ``[..., blades]``.
            b: ``[..., blades]``.
            blades: the blades that ``a`` carries, that the result is to have, and that ``b``
                carries; all by default.
        """
        if blades is not None:
            left, output, right = self._indices(blades, "of a", "of the result", "of b")
            self._check("a", a, len(left))
            self._check("b", b, len(right))
            return _dense(a, self.cayley[left[:, None, None], output[:, None], right], b)
        self._check("a", a)
        self._check("b", b)
        if not _has_kernel(a, b):
            return _dense(a, self.cayley, b)
        batch = torch.broadcast_shapes(a.shape[:-1], b.shape[:-1])
        *rows, channels = batch or (1,)
        shape = (math.prod(rows), channels, self.n_blades)
        x, y = (x.expand(*batch, -1).reshape(shape).permute(2, 0, 1) for x in (a, b))
        if self.reorders_blades:
            x, y = self._enter(x), self._enter(y)
        product = F.geometric_product(x, y, self.flashcliff_algebra)
        if self.reorders_blades:
            product = self._leave(product)
        return product.permute(1, 2, 0).reshape(*batch, self.n_blades)

    def reduce_geometric_product(self, inputs: Iterable[Tensor]) -> Tensor:
        """The product of several multivectors, from the left."""
        product = None
        for factor in inputs:
            product = factor if product is None else self.geometric_product(product, factor)
        if product is None:
            raise ValueError("inputs: expected at least one multivector, got none")
        return product

    def sandwich(self, u: Tensor, v: Tensor, w: Tensor) -> Tensor:
        """``u v w``. CGENN reverses nothing in this function."""
        return self.geometric_product(self.geometric_product(u, v), w)

    def output_blades(self, blades_left: Iterable[int], blades_right: Iterable[int]) -> Tensor:
        """The blade of each product of a left with a right blade, ``[left x right]``."""
        masks, index = self.bbo.index_to_bitmap, self.bbo.bitmap_to_index
        right = list(blades_right)
        return torch.tensor([int(index[masks[i] ^ masks[k]]) for i in blades_left for k in right])

    # Involutions

    def alpha(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The grade involution: grade ``k`` times ``(-1)^k``."""
        return self._signed(_ALPHA, mv, blades)

    def beta(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The reverse: grade ``k`` times ``(-1)^(k(k-1)/2)``."""
        return self._signed(_BETA, mv, blades)

    def gamma(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The Clifford conjugate: grade ``k`` times ``(-1)^(k(k+1)/2)``."""
        return self._signed(_GAMMA, mv, blades)

    def zeta(self, mv: Tensor) -> Tensor:
        """The scalar part, ``[..., 1]``."""
        remedies.check_dense("mv", mv)
        return mv[..., :1]

    # Blades

    def embed(self, tensor: Tensor, tensor_index: Blades) -> Tensor:
        """Multivectors ``[..., blades]`` with the last axis at some blades, zero elsewhere."""
        remedies.check_dense("tensor", tensor)
        mv = tensor.new_zeros(*tensor.shape[:-1], self.n_blades)
        try:
            mv[..., tensor_index] = tensor
        except (IndexError, RuntimeError) as error:
            raise ValueError(
                f"tensor: expected [..., blades] for the blades {tensor_index!r} of "
                f"{self.n_blades}, got {list(tensor.shape)}: {error}"
            ) from None
        return mv

    def embed_grade(self, tensor: Tensor, grade: int) -> Tensor:
        """Multivectors ``[..., blades]`` with the last axis as the blades of one grade, in the type
        of the algebra's tables."""
        part = self.grade_to_slice[self._grade(grade)]
        self._check("tensor", tensor, part.stop - part.start)
        mv = tensor.new_zeros(*tensor.shape[:-1], self.n_blades, dtype=self.cayley.dtype)
        mv[..., part] = tensor
        return mv

    def get(self, mv: Tensor, blade_index: Iterable[int]) -> Tensor:
        """Some blades, ``[..., len(blade_index)]``."""
        remedies.check_dense("mv", mv)
        return mv[..., tuple(blade_index)]

    def get_grade(self, mv: Tensor, grade: int) -> Tensor:
        """The blades of one grade; a view."""
        remedies.check_dense("mv", mv)
        return mv[..., self.grade_to_slice[self._grade(grade)]]

    # Forms and norms

    def b(self, x: Tensor, y: Tensor, blades: tuple[Tensor, Tensor] | None = None) -> Tensor:
        """The bilinear form: the scalar part of ``reverse(x) y``, ``[..., 1]``.

        Args:
            x: ``[..., blades]``.
            y: ``[..., blades]``.
            blades: the blades that ``x`` and ``y`` carry; all by default.
        """
        if blades is None:
            self._check("x", x)
            self._check("y", y)
            return (self._signs[_FORM].to(x.dtype) * x * y).sum(-1, keepdim=True)
        left, right = self._indices(blades, "of x", "of y")
        self._check("x", x, len(left))
        self._check("y", y, len(right))
        form = self.cayley[left[:, None], 0, right].to(x.dtype)
        return ((self.beta(x, left) @ form) * y).sum(-1, keepdim=True)

    def q(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The quadratic form, the scalar part of ``reverse(mv) mv``, ``[..., 1]``."""
        signs = self._signs[_FORM]
        if blades is not None:
            signs = signs[self._index(blades)]
        self._check("mv", mv, len(signs))
        return (signs.to(mv.dtype) * mv * mv).sum(-1, keepdim=True)

    def norm(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The smooth norm, ``(q^2 + 1e-16)^(1/4)``, ``[..., 1]``."""
        return (self.q(mv, blades) ** 2 + 1e-16) ** 0.25

    def qs(self, mv: Tensor, grades: Iterable[int] | None = None) -> list[Tensor]:
        """The quadratic forms of some grades, ``[..., 1]`` each; of all by default."""
        self._check("mv", mv)
        terms = self._signs[_FORM].to(mv.dtype) * mv * mv
        return [
            self.get_grade(terms, grade).sum(-1, keepdim=True)
            for grade in (range(self.n_subspaces) if grades is None else grades)
        ]

    def norms(self, mv: Tensor, grades: Iterable[int] | None = None) -> list[Tensor]:
        """The smooth norms of some grades, ``[..., 1]`` each; of all by default."""
        return [(q**2 + 1e-16) ** 0.25 for q in self.qs(mv, grades)]

    # Versors

    def parity(self, mv: Tensor) -> Tensor:
        """Whether all multivectors of a tensor are odd; an error unless all are odd or all even."""
        self._check("mv", mv)
        odd = torch.all(mv[..., self.even_grades] == 0)
        even = torch.all(mv[..., self.odd_grades] == 0)
        if odd == even:
            raise ValueError(
                "parity: expected multivectors that are all odd or all even, and not zero"
            )
        return odd

    def eta(self, w: Tensor) -> Tensor:
        """The sign of a versor: -1 if it is odd, else 1."""
        return 1 - 2 * self.parity(w).to(torch.int64)

    def alpha_w(self, w: Tensor, mv: Tensor) -> Tensor:
        """The grade involution of ``mv`` if ``w`` is odd, else ``mv``."""
        return torch.where(self.odd_grades, self.eta(w) * mv, mv)

    def inverse(self, mv: Tensor, blades: Blades | None = None) -> Tensor:
        """The inverse of a versor, ``reverse(mv) / q(mv)``."""
        return self.beta(mv, blades) / self.q(mv, blades)

    def rho(self, w: Tensor, mv: Tensor) -> Tensor:
        """The action of a versor on multivectors, the twisted conjugation: odd versors get the sign
        that makes vectors reflect."""
        return self.sandwich(w, self.alpha_w(w, mv), self.inverse(w))

    def random(self, n: int | None = None) -> Tensor:
        """Random multivectors ``[n, blades]``, normal; one by default."""
        return torch.randn(1 if n is None else n, self.n_blades)

    def random_vector(self, n: int | None = None) -> Tensor:
        """Random vectors as multivectors ``[n, blades]``, normal; one by default."""
        vectors = torch.randn(1 if n is None else n, self.dim, device=self.cayley.device)
        return self.embed(vectors, tuple(range(1, self.dim + 1)))

    def versor(self, order: int | None = None, normalized: bool = True) -> Tensor:
        """A random versor ``[1, blades]``.

        Args:
            order: of how many vectors it is the product; by default the largest even number that is
                at most ``dim``, a rotor.
            normalized: whether its norm is 1.
        """
        if order is None:
            order = self.dim - self.dim % 2
        versor = self.reduce_geometric_product(self.random_vector(order)[:, None])
        return versor / self.norm(versor) if normalized else versor

    def rotor(self) -> Tensor:
        """A random rotor ``[1, blades]``."""
        return self.versor()

    @property
    def geometric_product_paths(self) -> Tensor:
        """Which grades (left, output, right) the product has, ``[grades, grades, grades]``."""
        paths = torch.zeros([self.n_subspaces] * 3, dtype=torch.bool)
        paths[tuple(torch.tensor(self.flashcliff_algebra.paths).T)] = True
        return paths

    def extra_repr(self) -> str:
        return str(self._squares)

    def _enter(self, x: Tensor, signs: bool = True) -> Tensor:
        """Multivectors ``[blades, ...]`` in flashcliff's order of blades, contiguous. Without ``signs`` blades keep
        theirs."""
        self._check("x", x.movedim(0, -1))
        if signs:
            x = x * self._orientation(x)
        return x.index_select(0, self._order[_SOURCES])

    def _leave(self, x: Tensor, signs: bool = True) -> Tensor:
        """The inverse of :meth:`_enter`."""
        self._check("x", x.movedim(0, -1))
        x = x.index_select(0, self._order[_PLACES])
        return x * self._orientation(x) if signs else x

    def _orientation(self, x: Tensor) -> Tensor:
        """The signs of the blades as a factor of ``x``."""
        return self._signs[_ORIENTATION].to(x.dtype).view(-1, *[1] * (x.dim() - 1))

    def _signed(self, row, mv, blades):
        signs = self._signs[row]
        if blades is not None:
            signs = signs[self._index(blades)]
        self._check("mv", mv, len(signs))
        return signs * mv

    def _indices(self, blades: Any, *names: str) -> list[Tensor]:
        """The blades of several operands."""
        if not isinstance(blades, (tuple, list)) or len(blades) != len(names):
            raise TypeError(f"blades: expected a tuple of those {', '.join(names)}, got {blades!r}")
        return [self._index(each) for each in blades]

    def _index(self, blades: Any) -> Tensor:
        """Blades as a tensor of indices."""
        index = torch.as_tensor(blades, device=self.cayley.device)
        if index.dtype == torch.bool or index.is_floating_point() or index.dim() != 1:
            raise TypeError(f"blades: expected indices of blades in one axis, got {blades!r}")
        return index

    def _grade(self, grade: Any) -> int:
        grade = checks.integer("grade", grade)
        if not 0 <= grade <= self.dim:
            raise ValueError(f"grade: expected 0 to {self.dim}, got {grade}")
        return grade

    def _check(self, name: str, mv: Tensor, blades: int | None = None) -> None:
        blades = self.n_blades if blades is None else blades
        remedies.check_dense(name, mv)
        if mv.dim() < 1 or mv.shape[-1] != blades:
            raise ValueError(f"{name}: expected [..., {blades}], got {list(mv.shape)}")

    def _load_from_state_dict(
        self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs
    ):
        tables = _tables(self._squares)
        found = {name: state_dict[prefix + name] for name in tables if prefix + name in state_dict}
        if not found:
            # A layer without its own algebra wrote this state dict. The tables are constants.
            self._restore(tables)
            return
        for name, value in found.items():
            table = tables[name]
            if value.shape != table.shape or value.is_meta:
                continue
            if not torch.equal(value.detach().to("cpu", table.dtype), table):
                error_msgs.append(
                    f"{prefix}{name}: expected that of {self!r}, got {value.tolist()}"
                )
        super()._load_from_state_dict(
            state_dict,
            prefix,
            local_metadata,
            strict,
            missing_keys,
            unexpected_keys,
            error_msgs,
        )
        self._restore(_OWN)

    def _restore(self, names: Iterable[str]) -> None:
        """Writes tables again that no state dict has. A module that was made on the device ``meta`` has lost them, and has the other
        tables by now."""
        for name in names:
            own, table = getattr(self, name), _tables(self._squares)[name]
            if own.device == self.cayley.device and not own.is_meta:
                with torch.no_grad():
                    own.copy_(table)
            elif not self.cayley.is_meta:
                floats = self.cayley.dtype if table.is_floating_point() else table.dtype
                setattr(self, name, table.to(self.cayley.device, floats, copy=True))


def metric_of(algebra: Algebra | CliffordAlgebra) -> list[float]:
    """The squares of the basis vectors, in order."""
    if isinstance(algebra, CliffordAlgebra):
        return list(algebra._squares)
    p, q, r = algebra.signature
    return [0.0] * r + [1.0] * p + [-1.0] * q


def _squares(metric: Any) -> tuple[float, ...]:
    """The metric as a tuple."""
    if isinstance(metric, str) or not isinstance(metric, Iterable):
        raise TypeError(f"metric: expected the squares of the vectors, got {metric!r}")
    # Adding 0.0 makes no difference but for -0.0.
    squares = tuple(checks.number("metric", square) + 0.0 for square in metric)
    if not set(squares) <= {1.0, -1.0, 0.0}:
        raise ValueError(
            f"metric: expected 1, -1 or 0 for each vector, got {squares}; other squares are not supported"
        )
    return squares


def _algebra_of(squares: tuple[float, ...]) -> Algebra:
    return Algebra(*(squares.count(square) for square in (1.0, -1.0, 0.0)))


def _names(algebra: Algebra, order: Order) -> tuple[str, ...]:
    if order.is_ours:
        return algebra.blades
    vectors = [algebra.blades[1 + place][1:] for place in order.vectors]
    return tuple(
        "e" + "".join(blade) if blade else "1"
        for grade in range(algebra.grade_count)
        for blade in itertools.combinations(vectors, grade)
    )


def _sizes(dim: int) -> list[int]:
    """The number of blades of each grade."""
    return [math.comb(dim, grade) for grade in range(dim + 1)]


@cache
def _tables(squares: tuple[float, ...]) -> dict[str, Tensor]:
    """The buffers of the algebra of a metric, on the CPU; numbers in float64."""
    algebra, order = _algebra_of(squares), order_of(squares)
    with for_later_calls():
        grades = torch.tensor(algebra.grades)
        cayley = torch.zeros([len(grades)] * 3, dtype=torch.float64)
        left, right, output, sign = torch.tensor(order.terms()).T
        cayley[left, output, right] = sign.to(cayley.dtype)
        orientation = torch.tensor(order.signs, dtype=cayley.dtype)
        exponents = torch.stack([grades, grades * (grades - 1) // 2, grades * (grades + 1) // 2])
        signs = (1 - 2 * (exponents % 2)).to(cayley.dtype)
        form = signs[_BETA] * cayley[:, 0].diagonal()
        return {
            "metric": torch.tensor(squares, dtype=torch.float64),
            "subspaces": torch.tensor(_sizes(algebra.dim)),
            "bbo_grades": grades.to(torch.float64),
            "even_grades": grades % 2 == 0,
            "odd_grades": grades % 2 == 1,
            "cayley": cayley,
            "_signs": torch.cat([signs, form[None], orientation[None]]),
            "_order": torch.tensor([order.sources, order.places]),
        }


def _blade_order(dim: int) -> SimpleNamespace:
    """The blades as bit masks in short-lex order, as CGENN's ``bbo`` has them."""
    masks = torch.tensor([sum(1 << vector for vector in blade) for blade in blades_of(dim)])
    grades = torch.tensor([len(blade) for blade in blades_of(dim)])
    return SimpleNamespace(
        index_to_bitmap=masks, bitmap_to_index=torch.argsort(masks), grades=grades
    )


def _has_kernel(a: Tensor, b: Tensor) -> bool:
    """Whether the operator takes these tensors. For others the table is summed."""
    if a.dtype != b.dtype or a.dtype not in (torch.float32, torch.float64):
        return False
    if a.device != b.device or not (a.is_cpu or (a.is_cuda and _core.CUDA)):
        return False
    if torch.compiler.is_compiling():
        return True
    return not torch._C._are_functorch_transforms_active() and forward_ad._current_level < 0


def _dense(a: Tensor, table: Tensor, b: Tensor) -> Tensor:
    dtype = torch.result_type(a, b)
    a, table, b = (x.to(dtype) for x in (a, table, b))
    return torch.einsum("...i,ijk,...k->...j", a, table, b)
