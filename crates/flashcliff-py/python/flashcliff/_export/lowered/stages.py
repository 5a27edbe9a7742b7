"""A program as few operations on many components: for hosts that run one operation after another, as runtimes of ONNX do.

Each expression is a sum of *atoms* with numbers in front: components of inputs, elements of parameters, and what is not linear (products,
quotients, functions, sums over channels). Atoms of one kind whose operands are known together are one operation on a stack of components,
``[atoms, rows, channels]``, and sums are one product with a matrix of numbers. The product of two multivectors of Cl(3,0,1) is so a
product of all pairs of components and one of matrices, in place of 192 products and 176 sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from ..operations import Operations, Tensor
from . import functions
from .elementwise import uniform
from .layout import Channels
from .program import Expression, Program

__all__ = ["evaluate"]

_PAIRS = {"div": "divide", "max": "maximum", "greater": "greater"}
_WASTE = 1.5
"""How many pairs of components may be computed for each that is read, before pairs are chosen one by one."""


class Form(NamedTuple):
    """A sum of atoms with numbers in front, and a number."""

    terms: tuple[tuple[int, float], ...]
    number: float = 0.0

    def times(self, factor: float) -> Form:
        if factor == 0:
            return Form(())
        return Form(tuple((at, own * factor) for at, own in self.terms), self.number * factor)

    def plus(self, other: Form, factor: float) -> Form:
        found = dict(self.terms)
        for at, own in other.terms:
            found[at] = found.get(at, 0.0) + own * factor
        terms = tuple(sorted((at, own) for at, own in found.items() if own != 0))
        return Form(terms, self.number + other.number * factor)


class Atom(NamedTuple):
    """What a form is a sum of."""

    kind: str
    operands: tuple[Form, ...]
    of: Any
    level: int
    width: bool | None
    """Whether it has a value for each scalar channel, for each channel, or (``None``) for each row."""


class Stack(NamedTuple):
    """Atoms one after another, ``[atoms, rows, channels]``. Of the axes only that of rows is open."""

    tensor: Tensor
    atoms: int
    channels: int


def evaluate(
    ops: Operations,
    program: Program,
    lanes: Sequence[Tensor],
    parameters: Sequence[Tensor],
    row: Tensor | None,
    counts: Channels,
) -> list[Tensor]:
    """The outputs, as :func:`.elementwise.evaluate` has them."""
    forms = _Forms(program, counts)
    outputs = [[forms.of(at) for at in own] for own, _ in program.outputs]
    stacks = _Stacks(ops, forms.atoms, counts)
    stacks.begin([*lanes, *parameters, *([] if row is None else [row])], program)
    stacks.run([form for own in outputs for form in own])
    return [stacks.values(own, whole=True) for own in outputs]


class _Forms:
    """The expressions of a program as sums of atoms."""

    def __init__(self, program: Program, counts: Channels) -> None:
        self.program = program
        self.counts = counts
        self.atoms: list[Atom] = []
        self._known: dict[Any, int] = {}
        self._forms: list[Form] = []
        for own in program.expressions:
            self._forms.append(self._form(own))

    def of(self, expression: int) -> Form:
        return self._forms[expression]

    def _atom(self, kind: str, operands: tuple[Form, ...], of: Any, width: bool | None) -> Form:
        key = kind, operands, of
        if key not in self._known:
            levels = [self.atoms[at].level for own in operands for at, _ in own.terms]
            level = 1 + max(levels, default=0) if operands else 0
            self._known[key] = len(self.atoms)
            self.atoms.append(Atom(kind, operands, of, level, width))
        return Form(((self._known[key], 1.0),))

    def _width(self, *forms: Form) -> bool | None:
        widths = (self.atoms[at].width for own in forms for at, _ in own.terms)
        return next((width for width in widths if width is not None), None)

    def _form(self, own: Expression) -> Form:
        kind, operands, of = own
        given = [self._forms[at] for at in operands]
        match kind:
            case "constant":
                return Form((), float(of))
            case "lane":
                return self._atom(kind, (), of, self.program.inputs[of[0]][2])
            case "parameter":
                return self._atom(kind, (), of, self.program.parameters[of[0]][2])
            case "row":
                return self._atom(kind, (), (of, 0), None)
            case "channels" | "scalars" | "inverse":
                return Form((), uniform(kind, self.counts))
            case "same":
                return given[0]
            case "neg":
                return given[0].times(-1)
            case "add":
                return given[0].plus(given[1], 1)
            case "sub":
                return given[0].plus(given[1], -1)
            case "mul":
                return self._product(*given)
            case "sum":
                return self._sum(given[0])
        if kind == "div" and not given[1].terms:
            return given[0].times(1 / given[1].number)
        return self._atom(kind, tuple(given), of, self._width(*given))

    def _product(self, x: Form, y: Form) -> Form:
        if not x.terms or not y.terms:
            return y.times(x.number) if not x.terms else x.times(y.number)
        factor = 1.0
        given = []
        for own in (x, y):
            if len(own.terms) == 1 and own.number == 0:
                factor *= own.terms[0][1]
                own = own.times(1 / own.terms[0][1])
            given.append(own)
        return self._atom("mul", tuple(given), None, self._width(x, y)).times(factor)

    def _sum(self, x: Form) -> Form:
        width = self._width(x)
        if width is None:
            return x.times(self.counts.multivectors)
        return self._atom("sum", (x,), width, None)


class _Stacks:
    """The atoms of a program as stacks."""

    def __init__(self, ops: Operations, atoms: list[Atom], counts: Channels) -> None:
        self.ops = ops
        self.atoms = atoms
        self.counts = counts
        self.stacks: list[Stack] = []
        self.place: dict[int, tuple[int, int]] = {}
        """The stack of an atom, and its place there."""

    def begin(self, tensors: Sequence[Tensor], program: Program) -> None:
        """Takes the inputs, the parameters and the numbers of rows as the first stacks."""
        sizes = [(count, self._width(of)) for _, count, of in program.inputs + program.parameters]
        sizes += [(1, 1) for _ in program.rows]
        self.stacks += [Stack(own, *size) for own, size in zip(tensors, sizes, strict=True)]
        first = {"lane": 0, "parameter": len(program.inputs), "row": len(tensors) - 1}
        for at, atom in enumerate(self.atoms):
            if not atom.operands:
                self.place[at] = first[atom.kind] + atom.of[0], atom.of[1]

    def _width(self, of: bool | None) -> int:
        if of is None:
            return 1
        return self.counts.scalars if of else self.counts.multivectors

    def _channels(self, forms: list[Form]) -> int:
        """The last axis of forms one after another."""
        widths = {self.atoms[at].width for own in forms for at, _ in own.terms} - {None}
        return self._width(*widths) if widths else 1

    def run(self, outputs: list[Form]) -> None:
        """Computes all atoms that the outputs need."""
        needed = self._needed(outputs)
        for level in range(1, 1 + max((self.atoms[at].level for at in needed), default=0)):
            groups: dict[Any, list[int]] = {}
            for at in sorted(needed):
                if self.atoms[at].level == level:
                    groups.setdefault(self._group(at), []).append(at)
            for members in groups.values():
                self._add(members)

    def _needed(self, outputs: list[Form]) -> set[int]:
        needed: set[int] = set()
        open_ = [at for own in outputs for at, _ in own.terms]
        while open_:
            at = open_.pop()
            if at not in needed:
                needed.add(at)
                open_ += [other for own in self.atoms[at].operands for other, _ in own.terms]
        return needed

    def _group(self, at: int) -> Any:
        """What atoms of one operation have alike: the stacks of their operands too, so that pairs of multivectors stay together."""
        atom = self.atoms[at]
        sources = (frozenset(self.place[own][0] for own, _ in form.terms) for form in atom.operands)
        return atom.kind, atom.of, atom.width, tuple(sources)

    def _add(self, members: list[int]) -> None:
        atoms = [self.atoms[at] for at in members]
        kind, of = atoms[0].kind, atoms[0].of
        if kind == "mul":
            places, tensor, count = self._products([atom.operands for atom in atoms])
        else:
            places, count = list(range(len(atoms))), len(atoms)
            tensor = self._apply(kind, of, atoms)
        for at, place in zip(members, places, strict=True):
            self.place[at] = len(self.stacks), place
        self.stacks.append(Stack(tensor, count, self._width(atoms[0].width)))

    def _apply(self, kind: str, of: Any, atoms: list[Atom]) -> Tensor:
        given = [
            self.values([atom.operands[side] for atom in atoms], whole=side == 0)
            for side in range(len(atoms[0].operands))
        ]
        match kind:
            case "sum":
                return self.ops.sum(given[0], 2)
            case "call":
                return functions.call(self.ops, of, given[0])
            case "hypot":
                return functions.hypot(self.ops, *given)
        return getattr(self.ops, _PAIRS[kind])(*given)

    def _products(self, pairs: list[tuple[Form, ...]]) -> tuple[list[int], Tensor, int]:
        """The products of pairs: the place of each, all of them, and how many there are."""
        sides = [list(dict.fromkeys(pair[side] for pair in pairs)) for side in (0, 1)]
        rows, columns = map(len, sides)
        if rows * columns > _WASTE * len(pairs):
            x, y = ([pair[side] for pair in pairs] for side in (0, 1))
            first = self.values(x, whole=True)
            second = first if x == y else self.values(y, whole=True)
            return list(range(len(pairs))), self.ops.multiply(first, second), len(pairs)
        index = [{form: at for at, form in enumerate(own)} for own in sides]
        places = [index[0][x] * columns + index[1][y] for x, y in pairs]
        left, right = (self.values(own, whole=True) for own in sides)
        if min(rows, columns) == 1:
            return places, self.ops.multiply(left, right), rows * columns
        left = self.ops.reshape(left, [rows, 1, -1, self._channels(sides[0])])
        right = self.ops.reshape(right, [1, columns, -1, self._channels(sides[1])])
        channels = self._channels([*sides[0], *sides[1]])
        product = self.ops.reshape(self.ops.multiply(left, right), [rows * columns, -1, channels])
        return places, product, rows * columns

    def values(self, forms: list[Form], whole: bool) -> Tensor:
        """Forms one after another. Those that are all the same may be one, unless the whole is wanted."""
        if not whole and len(set(forms)) == 1:
            forms = forms[:1]
        total: Tensor | None = None
        sources = sorted({self.place[at][0] for own in forms for at, _ in own.terms})
        for source in sources:
            part = self._part(forms, source)
            total = part if total is None else self.ops.add(total, part)
        numbers = np.array([own.number for own in forms]).reshape(-1, 1, 1)
        if total is None:
            return numbers
        return self.ops.add(total, numbers) if numbers.any() else total

    def _part(self, forms: list[Form], source: int) -> Tensor:
        """The part of forms that is of a stack."""
        tensor, count, _ = self.stacks[source]
        matrix = np.zeros((len(forms), count))
        for at, own in enumerate(forms):
            for atom, factor in own.terms:
                stack, place = self.place[atom]
                if stack == source:
                    matrix[at, place] += factor
        if (np.count_nonzero(matrix, axis=1) == 1).all():
            places = np.abs(matrix).argmax(1)
            found = self.ops.choose(tensor, 0, places) if self._moves(places, count) else tensor
            signs = matrix[np.arange(len(forms)), places].reshape(-1, 1, 1)
            return found if (signs == 1).all() else self.ops.multiply(found, signs)
        return self._product(matrix, self.stacks[source])

    @staticmethod
    def _moves(places: np.ndarray, count: int) -> bool:
        return len(places) != count or bool((places != np.arange(count)).any())

    def _product(self, matrix: np.ndarray, stack: Stack) -> Tensor:
        """A matrix times a stack."""
        ops = self.ops
        tensor, count, channels = stack
        if count == 1:
            return ops.multiply(tensor, matrix.reshape(-1, 1, 1))
        flat = ops.matmul(matrix, ops.reshape(tensor, [count, -1]))
        return ops.reshape(flat, [len(matrix), -1, channels])
