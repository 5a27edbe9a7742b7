"""The choices by which geometric algebra transformers over different algebras differ."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from typing import Any

import torch
from torch import Tensor

from ..._ops import checks, doors, remedies
from ..._ops.kept import for_later_calls
from ...algebra import Algebra, AlgebraLike, as_algebra
from .maps import GROUPS, MapPlan, map_plan

__all__ = ["Geometry", "geometry_of"]


@dataclass(frozen=True)
class Geometry:
    """The group, the maps, the products and the norms of a geometric algebra transformer.

    :func:`geometry_of` returns the choices of the published networks.

    Example:
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import geometry_of
        >>> geometry = geometry_of(Algebra(3, 0, 1))
        >>> geometry.group, geometry.join, geometry.distances
        ('pin', True, True)
    """

    algebra: Algebra
    group: str = "pin"
    """``"pin"``: layers commute with reflections too. ``"spin"``: with the connected group only, which allows more
    maps."""
    unit_maps: bool = False
    """Whether each linear map is divided by its Frobenius norm."""
    product: bool = True
    """Whether the first layer of a block's MLP multiplies multivectors."""
    join: bool = False
    """Whether that layer also has the join, for algebras with one null vector."""
    distances: bool = False
    """Whether attention sees distances of points, for Cl(n,0,1), besides the inner product."""
    bivectors: bool = True
    """Whether the product keeps its bivectors."""
    head_norm: bool = False
    """Whether queries, keys and values are normalised."""
    product_norm: bool = False
    """Whether the result of the bilinear layer is normalised."""
    vectors: bool = False
    """Whether items have vectors, the blades of grade 1, in place of multivectors, as in L-GATr-slim (arXiv 2512.17011)."""
    shared_starts: bool = True
    """Whether weights between invariant blades start with half of the variance where scalar channels add to them."""

    # Derived once, and attributes rather than properties, because `torch.compile` cannot trace how they are derived.
    plan: MapPlan = field(init=False, repr=False, compare=False)
    """The linear maps that commute with the group."""
    scalar_blades: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The blades that scalar channels mix with: the scalar, and for ``"spin"`` the pseudoscalar."""
    norms: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The squared norm ``<reverse(e_i) e_i>_0`` of each blade of an item: +1, -1 or 0."""
    norm_rows: tuple[tuple[float, ...], ...] = field(init=False, repr=False, compare=False)
    """A matrix ``[rows, blades]`` whose product with squared blades is the squared norm of each grade, without grades
    that have none; one row for all grades if all norms are positive."""
    join_signs: tuple[float, ...] = field(init=False, repr=False, compare=False)
    """The factor of each blade by which the join differs from the regressive product."""

    def __post_init__(self) -> None:
        if not isinstance(self.algebra, Algebra):
            raise TypeError(
                f"algebra: expected a flashcliff.Algebra, got {self.algebra!r}; geometry_of takes signatures, too"
            )
        checks.one_of("group", self.group, GROUPS)
        for name in _FLAGS:
            checks.flag(name, getattr(self, name))
        for name in ("join", "distances"):
            if getattr(self, name) and self.algebra.signature[1:] != (0, 1):
                raise ValueError(
                    f"{name}: expected an algebra Cl(n,0,1), such as Algebra(3, 0, 1), got {self.algebra!r}"
                )
        plan = map_plan(self.algebra, self.group, self.unit_maps)
        norms = tuple(self.algebra._core.blade_norms)
        mixed = (0,) if self.group == "pin" else (0, len(norms) - 1)
        rows = _norm_rows(self.algebra, norms)
        derived = {
            "plan": plan,
            "scalar_blades": mixed,
            "norms": norms[1 : 1 + self.algebra.dim] if self.vectors else norms,
            "norm_rows": rows,
            "join_signs": tuple(
                (-1.0) ** (grade * (self.algebra.dim - grade)) for grade in self.algebra.grades
            ),
        }
        for name, value in derived.items():
            object.__setattr__(self, name, value)

    @property
    def blade_count(self) -> int:
        """The blades of a multivector of an item, or of a vector."""
        return self.algebra.dim if self.vectors else self.algebra.blade_count

    def __repr__(self) -> str:
        options = [
            option
            for option in fields(self)
            if option.init and option.name not in ("algebra", "group")
        ]
        differs = [
            option.name for option in options if getattr(self, option.name) != option.default
        ]
        shown = "".join(f", {name}={getattr(self, name)}" for name in differs)
        return f"Geometry({self.algebra!r}, group={self.group!r}{shown})"


_FLAGS = (
    "unit_maps",
    "product",
    "join",
    "distances",
    "bivectors",
    "head_norm",
    "product_norm",
    "vectors",
    "shared_starts",
)

_PUBLISHED: dict[str, dict[str, object]] = {
    "cl301": {"unit_maps": True, "join": True, "distances": True},
    "cl130": {"group": "spin", "head_norm": True, "product_norm": True},
}


GeometryLike = AlgebraLike | Geometry
"""A geometry, or an algebra, which stands for the geometry of the published network over it."""


def geometry_of(algebra: GeometryLike) -> Geometry:
    """The geometry of the published network over an algebra.

    ====================== ==========================================================================
    algebra                choices
    ====================== ==========================================================================
    Cl(3,0,1)              GATr (arXiv 2305.18415): E(3), join, distances in attention
    Cl(1,3)                L-GATr (arXiv 2405.14806): connected Lorentz group, norms of queries, keys,
                           values and products
    others                 as E-GATr and C-GATr (arXiv 2311.04744): the full group, no join
    ====================== ==========================================================================

    Args:
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``, or a :class:`Geometry`, which is returned as it is.
    """
    if isinstance(algebra, Geometry):
        return algebra
    found = as_algebra(algebra)
    chosen = _PUBLISHED.get(found.name, {})
    return Geometry(found, **chosen)  # type: ignore[arg-type]


def _norm_rows(algebra: Algebra, norms: tuple[int, ...]) -> tuple[tuple[float, ...], ...]:
    if min(norms) >= 0:
        # No absolute value is needed, so all grades are one sum.
        return (tuple(float(norm) for norm in norms),)
    by_grade = (
        tuple(
            float(norm) if at == grade else 0.0
            for at, norm in zip(algebra.grades, norms, strict=True)
        )
        for grade in range(algebra.grade_count)
    )
    return tuple(row for row in by_grade if any(row))


def _tensor(rows: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    if doors.closed():
        # A tensor of a mode, a transform or a trace must not be kept for other calls.
        return torch.tensor(rows, dtype=dtype, device=device)
    return _cached(rows, dtype, device)


@functools.cache
def _cached(rows: tuple[object, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    with for_later_calls():
        return torch.tensor(rows, dtype=dtype, device=device)


def constant(values: tuple[object, ...], like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A tensor of constants on the device of another, made once; of its dtype if none is given."""
    return _tensor(values, like.dtype if dtype is None else dtype, like.device)


def indices(values: tuple[int, ...], like: Tensor) -> Tensor:
    """A tensor of indices on the device of another tensor, made once."""
    return _tensor(values, torch.int64, like.device)


def rows_by(x: Tensor, numbers: tuple[int, ...]) -> Tensor:
    """The rows of a tensor by numbers, which may repeat."""
    if not x.is_cuda or len(set(numbers)) == len(numbers):
        return x.index_select(0, indices(numbers, x))
    # There the gradient of a row that is read twice would be added up in the order in which threads come.
    rows = x.unbind(0)
    return torch.stack([rows[number] for number in numbers])


def without_autocast(x: Tensor) -> contextlib.AbstractContextManager[Any]:
    """A context in which autocast leaves tensors on the device of another as they are."""
    if x.is_meta:
        # There is no autocast of tensors without data.
        return contextlib.nullcontext()
    return torch.autocast(x.device.type, enabled=False)


def check_types(what: str, tensors: Sequence[Tensor | None]) -> None:
    """Checks that tensors have one type and lie on one device."""
    given = [t for t in tensors if t is not None]
    first = given[0]
    for t in given:
        if t.dtype != first.dtype or t.device != first.device:
            raise TypeError(
                f"{what}: expected all tensors and parameters of type {first.dtype} on {first.device}, got {t.dtype} on {t.device}; "
                "convert the module or the inputs with `.to()`"
            )


def check_floating(name: str, x: Any) -> None:
    """Checks that a value is a dense tensor of real floating-point numbers."""
    remedies.check_tensor(name, x)
    if not x.is_floating_point():
        raise TypeError(
            f"{name}: expected real floating-point numbers, got {x.dtype}; convert it with `.float()` or `.to(dtype)`"
        )
    remedies.check_dense(name, x)


def check_scalars(name: str, x: Any) -> None:
    """Checks that a value is a tensor ``[*batch, scalars]``, of any number of channels."""
    check_floating(name, x)
    if not x.dim():
        raise ValueError(f"{name}: expected [*batch, scalars], got []")


def check_multivectors(name: str, x: Tensor, algebra: Algebra, channels: int) -> None:
    """Checks that a tensor is ``[blades, *batch, items, channels]``."""
    check_floating(name, x)
    if x.dim() < 2 or x.shape[0] != algebra.blade_count or x.shape[-1] != channels:
        raise ValueError(
            f"{name}: expected [{algebra.blade_count}, *batch, {channels}], got {list(x.shape)}"
        )
