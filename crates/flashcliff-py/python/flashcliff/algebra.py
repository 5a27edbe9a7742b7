"""Clifford algebras: blades, grades, paths and product tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any, ClassVar, Protocol

from . import _core
from ._ops import checks

_NAME = re.compile("cl[0-9]{3}")


class Algebra:
    """The Clifford algebra Cl(p, q, r): ``p`` vectors square to +1, ``q`` to -1 and ``r`` to 0.

    Vectors are ordered null first, then positive, then negative, and numbered from 0 if ``r > 0``,
    else from 1. There is one object for each signature: ``Algebra(3, 0, 0) is Algebra(3)``.

    Every signature of up to 8 dimensions works. On the CPU the kernels of :func:`algebras` are compiled; operators of
    others are interpreted, with the same results, slower. On CUDA, kernels that were not built are compiled at first
    use, which takes seconds, and kept in the cache folder.

    Args:
        p: how many vectors square to +1.
        q: how many square to -1.
        r: how many square to 0.

    Raises:
        UnsupportedError: the signature has more than 8 dimensions.

    >>> algebra = Algebra(3, 0, 1)
    >>> algebra.blades[:6]
    ('1', 'e0', 'e1', 'e2', 'e3', 'e01')
    """

    __slots__ = ("_core", "blades", "grades", "name", "paths", "signature")

    _instances: ClassVar[dict[tuple[int, int, int], Algebra]] = {}

    _core: _core.Algebra
    signature: tuple[int, int, int]
    """The signature ``(p, q, r)``."""
    name: str
    """The name, such as ``cl301``."""
    blades: tuple[str, ...]
    """The names of the blades, in the order of tensors."""
    grades: tuple[int, ...]
    """The grade of each blade."""
    paths: tuple[tuple[int, int, int], ...]
    """The grade triples (left, output, right) of the geometric product, in the order of weights."""

    def __new__(cls, p: int, q: int = 0, r: int = 0) -> Algebra:
        signature = (checks.count("p", p), checks.count("q", q), checks.count("r", r))
        found = cls._instances.get(signature)
        if found is not None:
            return found
        try:
            core = _core.Algebra(*signature)
        except OverflowError:
            raise ValueError(f"algebra: expected p + q + r <= 8, got {signature}") from None
        self = object.__new__(cls)
        self._core = core
        self.signature = signature
        self.name = core.name
        self.blades = tuple(core.blade_names)
        self.grades = tuple(core.blade_grades)
        self.paths = tuple(core.paths())
        return cls._instances.setdefault(signature, self)

    @property
    def is_compiled(self) -> bool:
        """Whether this build has compiled kernels for the algebra. If not, operators are interpreted
        on the CPU, which takes longer: a message of the logger ``flashcliff`` says so once, at the
        level ``INFO``."""
        return self._core.is_compiled

    @property
    def dim(self) -> int:
        """The number of vectors, ``p + q + r``."""
        return sum(self.signature)

    @property
    def blade_count(self) -> int:
        """The number of blades, ``2 ** dim``."""
        return len(self.blades)

    @property
    def grade_count(self) -> int:
        """The number of grades, ``dim + 1``."""
        return self.dim + 1

    @property
    def has_euclidean_norms(self) -> bool:
        """Whether all vectors square to one sign, so that the invariant norm of each grade is the sum of
        its squares."""
        return max(self.signature) == self.dim and (self.signature[2] == 0 or self.dim == 1)

    @property
    def path_count(self) -> int:
        """The number of paths, and so of weights for each channel of a product."""
        return len(self.paths)

    def blades_of(self, grades: Iterable[int] | None = None) -> tuple[int, ...]:
        """The indices of the blades whose grades are among ``grades``, which is how tensors that
        carry only these grades store them."""
        if grades is None:
            return tuple(range(self.blade_count))
        wanted = grades_of(self, "grades", grades, empty=True) or ()
        return tuple(index for index, grade in enumerate(self.grades) if grade in wanted)

    def paths_between(
        self, left: Iterable[int] | None = None, right: Iterable[int] | None = None
    ) -> tuple[tuple[int, int, int], ...]:
        """The paths between operands that carry only some grades."""
        return tuple(self._core.paths(*self._sides(left, right)))

    def reachable(
        self,
        kind: str = "geometric",
        left: Iterable[int] | None = None,
        right: Iterable[int] | None = None,
    ) -> tuple[int, ...]:
        """The grades of a product of operands that carry only some grades, in ascending order.

        ``"sandwich"`` are the grades of :func:`flashcliff.functional.sandwich`. None are reachable if the product is zero for
        all such operands; operators then return all blades, which are zeros.

        >>> Algebra(3, 0, 1).reachable("sandwich", (2, 3), (4,))
        (0, 1, 4)
        """
        return tuple(self._core.reachable(kind, *self._sides(left, right)))

    def terms(self, kind: str = "geometric") -> tuple[tuple[int, int, int, int], ...]:
        """The non-zero products of blades: ``(left, right, output, sign)``. The commutator of two
        blades is their product, or zero."""
        return tuple(self._core.terms(kind))

    def equivariant_maps(
        self, group: str = "pin"
    ) -> tuple[tuple[int, int, tuple[tuple[int, int, int], ...]], ...]:
        """All linear maps of multivectors that commute with a group, as a basis:
        ``(source grade, target grade, ((output, input, sign), ...))``.

        A map reads the blades of one grade and writes the blades of one grade. Each entry adds
        ``sign * x[input]`` to the output blade. Every map that commutes is a weighted sum of these,
        so a layer has one weight for each. Brehmer et al. (2023, arXiv 2305.18415) derive the 9
        maps of ``"pin"`` for ``Algebra(3, 0, 1)``. Spinner et al. (2024, arXiv 2405.14806) have the
        5 maps of ``"pin"`` and the 10 of ``"spin"`` for ``Algebra(1, 3)``.

        With ``n`` dimensions, the maps are, in this order:

        - ``x`` itself, for the grades 0 to ``n``. All signs are +.
        - If ``r = 1``, ``e0 * x`` for the grades 0 to ``n - 1``. All signs are +.
        - For ``"spin"``, ``x * I`` with ``I`` the product of all vectors in order, for the grades 0
          to ``n``, but not for ``n`` if ``r = 1``, where ``I * I = 0``. The signs come from
          the geometric product.
        - For ``"spin"`` if ``r = 1``, three maps of one entry with the sign +: to 1 from the
          product of all vectors but ``e0``, to 1 from ``I``, and to ``e0`` from ``I``.

        Entries are sorted by output. Maps from grade 0 write the invariant blades: multiples of
        these can be added to a multivector without loss of symmetry.

        Args:
            group: ``"pin"`` for all versors: reflections, rotations, boosts, and translations if
                ``r = 1``. ``"spin"`` for products of an even number of reflections: more maps
                commute with these.

        Raises:
            UnsupportedError: ``p + q`` is 0, or ``r`` is more than 1.
            ValueError: there is no group of that name.

        >>> for source, target, entries in Algebra(2, 0, 1).equivariant_maps():
        ...     print(source, target, entries)
        0 0 ((0, 0, 1),)
        1 1 ((1, 1, 1), (2, 2, 1), (3, 3, 1))
        2 2 ((4, 4, 1), (5, 5, 1), (6, 6, 1))
        3 3 ((7, 7, 1),)
        0 1 ((1, 0, 1),)
        1 2 ((4, 2, 1), (5, 3, 1))
        2 3 ((7, 6, 1),)
        """
        maps = self._core.equivariant_maps(group)
        return tuple((source, target, tuple(entries)) for source, target, entries in maps)

    def _sides(
        self, left: Iterable[int] | None, right: Iterable[int] | None
    ) -> tuple[tuple[int, ...] | None, tuple[int, ...] | None]:
        return grades_of(self, "left", left, empty=True), grades_of(
            self, "right", right, empty=True
        )

    def __repr__(self) -> str:
        return "Algebra({}, {}, {})".format(*self.signature)

    def __reduce__(self) -> tuple[type[Algebra], tuple[int, int, int]]:
        return Algebra, self.signature


def algebras() -> tuple[Algebra, ...]:
    """All algebras with compiled kernels."""
    return tuple(Algebra(*signature) for signature in _core.shipped())


def by_name(name: str) -> Algebra:
    """The algebra of a name such as ``cl301``."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f'algebra: expected a name such as "cl301", the digits p, q and r, got {name!r}'
        )
    return Algebra(*(int(digit) for digit in name[2:]))


class HasAlgebra(Protocol):
    """An object that stands for an algebra, such as CGENN's."""

    flashcliff_algebra: Algebra


AlgebraLike = Algebra | HasAlgebra | tuple[int, ...]
"""An algebra, an object that stands for one, or a signature ``(p, q, r)``."""

Grades = Iterable[int] | None
"""The grades that an operand carries; ``None`` is all of them."""


def as_algebra(algebra: AlgebraLike) -> Algebra:
    """An algebra: the value itself, the algebra of a signature ``(p, q, r)``, or the attribute
    ``flashcliff_algebra`` of an object, unless the object orders its blades in another way."""
    if isinstance(algebra, Algebra):
        return algebra
    inner = getattr(algebra, "flashcliff_algebra", None)
    if isinstance(inner, Algebra):
        if getattr(algebra, "reorders_blades", False):
            raise ValueError(
                f"algebra: expected vectors in the order null, positive, negative, got {algebra!r}; pass its attribute "
                "flashcliff_algebra, and multivectors that from_cgenn(x, algebra) of flashcliff.compat.cgenn made"
            )
        return inner
    if isinstance(algebra, tuple) and 1 <= len(algebra) <= 3:
        return Algebra(*algebra)
    raise TypeError(
        f"algebra: expected a flashcliff.Algebra or a tuple (p, q, r), got {algebra!r}{_remedy(algebra)}"
    )


def _remedy(algebra: Any) -> str:
    """The advice to someone who wrote a name."""
    if not isinstance(algebra, str) or not _NAME.fullmatch(algebra):
        return ""
    return "; write Algebra({}, {}, {})".format(*algebra[2:])


def grades_of(
    algebra: AlgebraLike,
    name: str,
    grades: Grades,
    empty: bool = False,
) -> tuple[int, ...] | None:
    """Grades that the algebra has, in ascending order, each once; ``None``, for all, stays
    ``None``."""
    if grades is None:
        return None
    return checks.grades(as_algebra(algebra).dim, name, grades, empty)
