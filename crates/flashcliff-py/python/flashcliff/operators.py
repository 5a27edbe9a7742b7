"""Operators that users write: a function of multivectors, traced once, becomes one kernel with gradients of every order.

>>> import torch, flashcliff
>>> from flashcliff.operators import Multivector, PerChannel, operator
>>>
>>> @operator(flashcliff.Algebra(3, 0, 0))
... def weighted_commutator(x: Multivector, y: Multivector, w: PerChannel):
...     return w * (x * y - y * x)
>>>
>>> x, y = torch.randn(8, 5, 4, requires_grad=True), torch.randn(8, 5, 4)
>>> weighted_commutator(x, y, torch.ones(4, 1)).shape
torch.Size([8, 5, 4])

The function runs once, on symbols. What it returns is a program over the blades, as the library's own operators are: it is interpreted in
vectors on the CPU, and compiled at the first call on a GPU. It works with autograd in both modes, ``torch.func``, ``torch.compile`` and
CUDA graphs.

Arrays of JAX are taken too, within ``jax.jit`` and with all derivatives, as by :mod:`flashcliff.jax`; arrays of NumPy, CuPy and other
libraries forward only, as by :mod:`flashcliff.arrays`. PyTorch need not be installed for them. :meth:`Operator.symmetry` says which
transformations an operator commutes with.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from . import _core
from ._jax import own as _of_jax
from ._ops import borrowed, checks
from .algebra import Algebra, AlgebraLike, as_algebra, grades_of

__all__ = ["Multivector", "Operator", "PerChannel", "PerItem", "Scalar", "Scalars", "operator"]

_own = (
    importlib.import_module("._ops.own", __package__)
    if importlib.util.find_spec("torch") is not None
    else None
)
"""Calls with tensors of PyTorch; without it there are arrays alone."""


class Scalar:
    """A number for each lane, or for each row: in a function that is traced.

    Scalars add, multiply and divide, also with numbers.
    """

    def __init__(self, program: _core.Program, value: int) -> None:
        self._program = program
        self._value = value

    def _with(self, function: str, *others: int) -> Scalar:
        return Scalar(self._program, self._program.apply(function, [self._value, *others]))

    def _other(self, other: Any) -> int | None:
        if isinstance(other, Scalar):
            return other._value
        if isinstance(other, (int, float)):
            return self._program.constant(float(other))
        return None

    def _binary(self, function: str, other: Any, turned: bool = False) -> Any:
        value = self._other(other)
        if value is None:
            return NotImplemented
        pair = [value, self._value] if turned else [self._value, value]
        return Scalar(self._program, self._program.apply(function, pair))

    def __add__(self, other: Any) -> Any:
        return self._binary("add", other)

    __radd__ = __add__

    def __sub__(self, other: Any) -> Any:
        return self._binary("sub", other)

    def __rsub__(self, other: Any) -> Any:
        return self._binary("sub", other, turned=True)

    def __mul__(self, other: Any) -> Any:
        return self._binary("mul", other)

    __rmul__ = __mul__

    def __truediv__(self, other: Any) -> Any:
        return self._binary("div", other)

    def __rtruediv__(self, other: Any) -> Any:
        return self._binary("div", other, turned=True)

    def __neg__(self) -> Scalar:
        return self._with("neg")

    def sqrt(self) -> Scalar:
        """The square root."""
        return self._with("sqrt")

    def sigmoid(self) -> Scalar:
        """``1 / (1 + exp(-s))``"""
        return self._with("sigmoid")

    def maximum(self, other: Any) -> Scalar:
        """The larger of two scalars, or of a scalar and a number; NaN if one of them is. Where both are equal, the gradient belongs to
        ``other``."""
        return self._with("max", self._scalar("maximum", other)._value)

    def minimum(self, other: Any) -> Scalar:
        """The smaller of two scalars, or of a scalar and a number; NaN if one of them is. Where both are equal, the gradient belongs to
        ``other``."""
        return -(-self).maximum(-self._scalar("minimum", other))

    def where_positive(self, yes: Any, no: Any) -> Scalar:
        """``yes`` where the scalar is above 0, else ``no``, also where the scalar is NaN. What is not taken has no gradient, and neither
        has the scalar itself; an infinity or NaN of it does not come through."""
        zero = self._program.constant(0.0)
        taken, other = (self._scalar("where_positive", value)._value for value in (yes, no))
        return self._with("select", zero, taken, other)

    def _scalar(self, function: str, value: Any) -> Scalar:
        """An argument that is a scalar or a number, as a scalar."""
        found = self._other(value)
        if found is None:
            raise TypeError(f"{function}: expected a scalar or a number, got {type(value).__name__}")
        return Scalar(self._program, found)

    def gate(self) -> Scalar:
        """The gate of the operator: see :func:`operator`."""
        return self._with("gate")

    def mean(self) -> Scalar:
        """The mean over the channels of a batch element, or over its scalar channels."""
        return Scalar(self._program, self._program.mean(self._value))

    def sum(self) -> Scalar:
        """The sum over the channels of a batch element, or over its scalar channels."""
        return Scalar(self._program, self._program.sum(self._value))

    def count(self) -> Scalar:
        """The number of channels that the scalar has: that of the channels, or of the scalar channels."""
        return Scalar(self._program, self._program.count(self._value))


class Scalars:
    """An annotation: an argument ``[1, *batch, scalar channels]``, scalars beside multivectors, with their own number of channels.

    In the function it is a :class:`Scalar`. Channels and scalar channels do not mix, but by a sum or a mean over either: each is then one
    number for a batch element. A result of scalar channels is ``[1, *batch, scalar channels]``.
    """


class PerChannel:
    """An annotation: a parameter ``[channels, count]``.

    In the function it is a scalar if ``count`` is 1, else a sequence of scalars. ``PerChannel("paths")`` has a weight for each path of a
    product: it is given to :meth:`Multivector.weighted`.

    Args:
        count: how many numbers a channel has.
        scalars: whether the channels are the scalar channels: a parameter ``[scalar channels, count]``.
    """

    def __init__(self, count: int | str = 1, *, scalars: bool = False) -> None:
        if count != "paths" and not (isinstance(count, int) and count > 0):
            raise ValueError(f"PerChannel: expected a count from 1 on, or `paths`, got {count!r}")
        self.count = count
        self.scalars = scalars


class PerItem:
    """An annotation: numbers of each batch element and channel, ``[count, *batch, channels]``, such as weights of edges.

    In the function it is a scalar if ``count`` is 1, else a sequence of scalars. ``PerItem("paths")`` has a weight for each path of a
    product: it is given to :meth:`Multivector.weighted`.

    Args:
        count: how many numbers a batch element has in a channel.
    """

    def __init__(self, count: int | str = 1) -> None:
        if count != "paths" and not (isinstance(count, int) and count > 0):
            raise ValueError(f"PerItem: expected a count from 1 on, or `paths`, got {count!r}")
        self.count = count


class Multivector:
    """A multivector in a function that is traced; as an annotation, an argument ``[blades, *batch, channels]`` with all blades.
    ``Multivector.of(1, 2)`` is the annotation of one with some grades.

    ==========  ==================================================================================
    sign        meaning
    ==========  ==================================================================================
    ``x + y``   sum, ``x - y`` difference; of different grades too
    ``x * y``   geometric product; ``x * s`` with a scalar, a parameter or a number
    ``x ^ y``   exterior product
    ``x | y``   inner product: the parts of grade ``abs(r - s)`` of the products of grades r and s
    ``x & y``   regressive product
    ``~x``      reverse
    ``x >> y``  sandwich ``x y ~x``
    ``x / s``   quotient by a scalar
    ==========  ==================================================================================
    """

    def __init__(
        self, algebra: Algebra, program: _core.Program, values: Sequence[int], grades: Sequence[int]
    ) -> None:
        self.algebra = algebra
        self.grades = tuple(grades)
        self._program = program
        self._values = list(values)

    @staticmethod
    def of(*grades: int) -> _Grades:
        """The annotation of an argument with these grades."""
        return _Grades(grades)

    # Parts

    @property
    def _parts(self) -> tuple[list[int], list[int]]:
        return self._values, list(self.grades)

    def _like(self, values: Sequence[int]) -> Multivector:
        return Multivector(self.algebra, self._program, values, self.grades)

    def _named(self) -> dict[int, int]:
        """The value of each blade."""
        return dict(zip(self.algebra.blades_of(self.grades), self._values))

    def _of_blades(self, values: dict[int, int]) -> Multivector:
        grades = sorted({self.algebra.grades[blade] for blade in values})
        blades = self.algebra.blades_of(grades)
        zero = self._program.constant(0.0)
        parts = [values.get(blade, zero) for blade in blades]
        return Multivector(self.algebra, self._program, parts, grades)

    def grade(self, *grades: int) -> Multivector:
        """The parts of some grades. Grades that the multivector lacks are left out."""
        kept = {b: v for b, v in self._named().items() if self.algebra.grades[b] in grades}
        if not kept:
            raise ValueError(f"grade: expected one of the grades {self.grades}, got {grades}")
        return self._of_blades(kept)

    @property
    def scalar(self) -> Scalar:
        """The scalar part; 0 if there is none."""
        value = self._named().get(0)
        return Scalar(self._program, self._program.constant(0.0) if value is None else value)

    def kept(self) -> Multivector:
        """The same multivector, which kernels may store where it is read more than once."""
        return self._like(self._program.cut(self._values))

    # Sums and multiples

    def _sum(self, other: Any, function: str) -> Any:
        if not isinstance(other, Multivector):
            return NotImplemented
        mine, theirs = self._named(), other._named()
        zero = self._program.constant(0.0)
        blades = {*mine, *theirs}
        return self._of_blades(
            {
                blade: self._program.apply(
                    function, [mine.get(blade, zero), theirs.get(blade, zero)]
                )
                for blade in blades
            }
        )

    def __add__(self, other: Any) -> Any:
        return self._sum(other, "add")

    def __sub__(self, other: Any) -> Any:
        return self._sum(other, "sub")

    def __neg__(self) -> Multivector:
        return self._like([self._program.apply("neg", [value]) for value in self._values])

    def _scaled(self, function: str, other: Any) -> Multivector | None:
        if isinstance(other, (int, float)):
            other = Scalar(self._program, self._program.constant(float(other)))
        if not isinstance(other, Scalar):
            return None
        scale = other._value
        return self._like([self._program.apply(function, [value, scale]) for value in self._values])

    def __truediv__(self, other: Any) -> Any:
        scaled = self._scaled("div", other)
        return NotImplemented if scaled is None else scaled

    def gated(self) -> Multivector:
        """Every blade times the gate of the scalar part: see :func:`operator`."""
        gate = self.scalar.gate()._value
        return self._like([self._program.apply("damp", [gate, value]) for value in self._values])

    # Products

    def _product(self, kind: str, other: Any) -> Any:
        if not isinstance(other, Multivector):
            return NotImplemented
        values, grades = self._program.product(kind, self._parts, other._parts)
        return Multivector(self.algebra, self._program, values, grades)

    def __mul__(self, other: Any) -> Any:
        scaled = self._scaled("mul", other)
        return self._product("geometric", other) if scaled is None else scaled

    def __rmul__(self, other: Any) -> Any:
        scaled = self._scaled("mul", other)
        return NotImplemented if scaled is None else scaled

    def __xor__(self, other: Any) -> Any:
        return self._product("exterior", other)

    def __and__(self, other: Any) -> Any:
        return self._product("regressive", other)

    def __or__(self, other: Any) -> Any:
        if not isinstance(other, Multivector):
            return NotImplemented
        # With null vectors the products of some grades are zero.
        total = self._of_blades({})
        for r in self.grades:
            for s in other.grades:
                product = self.grade(r) * other.grade(s)
                if abs(r - s) in product.grades:
                    total = total + product.grade(abs(r - s))
        return total

    def left_contraction(self, other: Multivector) -> Multivector:
        """The left contraction: the parts of grade ``s - r``."""
        return self._product("left_contraction", other)  # type: ignore[no-any-return]

    def right_contraction(self, other: Multivector) -> Multivector:
        """The right contraction: the parts of grade ``r - s``."""
        return self._product("right_contraction", other)  # type: ignore[no-any-return]

    def commutator(self, other: Multivector) -> Multivector:
        """``(x y - y x) / 2``"""
        return self._product("commutator", other)  # type: ignore[no-any-return]

    def weighted(self, other: Multivector, weights: Sequence[Scalar]) -> Multivector:
        """The geometric product with a weight for each path, in the order of :meth:`flashcliff.Algebra.paths_between`."""
        values, grades = self._program.weighted_product(
            self._parts, other._parts, [weight._value for weight in weights]
        )
        return Multivector(self.algebra, self._program, values, grades)

    def __rshift__(self, other: Any) -> Any:
        if not isinstance(other, Multivector):
            return NotImplemented
        return self * other * ~self

    # Involutions and duals

    def _involution(self, name: str) -> Multivector:
        signs = self._program.signs(name, list(self.grades))
        pairs = zip(self._values, signs)
        return self._like([self._program.apply("neg", [v]) if s < 0 else v for v, s in pairs])

    def __invert__(self) -> Multivector:
        return self._involution("reverse")

    def involute(self) -> Multivector:
        """The grade involution."""
        return self._involution("involute")

    def conjugate(self) -> Multivector:
        """The Clifford conjugate."""
        return self._involution("conjugate")

    def _moved(self, inverse: bool) -> Multivector:
        images = self._program.duals(inverse)
        moved = {}
        for blade, value in self._named().items():
            to, sign = images[blade]
            moved[to] = self._program.apply("neg", [value]) if sign < 0 else value
        return self._of_blades(moved)

    def dual(self) -> Multivector:
        """The right complement, as of :func:`flashcliff.functional.dual`."""
        return self._moved(inverse=False)

    def undual(self) -> Multivector:
        """The left complement, the inverse of :meth:`dual`."""
        return self._moved(inverse=True)

    # Measures

    def squares(self) -> Scalar:
        """The sum of the squares of all coefficients."""
        total = Scalar(self._program, self._program.constant(0.0))
        for value in self._values:
            total = total + Scalar(self._program, self._program.apply("mul", [value, value]))
        return total

    def quadratic_form(self) -> Scalar:
        """The scalar part of ``~x x``, which every versor leaves alone up to its sign."""
        return (~self * self).scalar

    def normed(self) -> Multivector:
        """The multivector over the root mean square of its coefficients: ``x / sqrt(mean over channels of x.squares() + eps)``."""
        eps = Scalar(self._program, self._program.eps())
        kept = self.kept()
        return kept * (1.0 / (kept.squares().mean() + eps).sqrt())


class _Grades:
    """The annotation of a multivector with some grades."""

    def __init__(self, grades: Iterable[int]) -> None:
        self.grades = tuple(grades)


_OF_FUNCTION = ("__wrapped__", "__annotations__", "__annotate__", "__type_params__")


class Operator:
    """An operator that a user has written; made by :func:`operator`. It is called with tensors or arrays, in the order of the function.

    Modules may hold it: a copy is the operator itself, and ``pickle`` stores its program without the function.

    Attributes:
        algebra: the algebra.
        inputs: names and axes of the arguments, where an axis is a size, ``batch``, ``in`` or ``scalars``.
        grades: the grades of the result; a tuple of them if the function returns several.
        digest: what the program computes, as 32 hexadecimal digits. Equal programs have equal digests.
    """

    def __init__(self, function: Callable[..., Any], algebra: Algebra, gate: str, eps: float) -> None:
        functools.update_wrapper(self, function)
        self.__name__ = function.__name__
        self.algebra = algebra
        self._lanes: list[bool] = []
        name = function.__name__
        program = _core.Program(algebra._core, name, f"{name}{inspect.signature(function)}")
        arguments = self._arguments(function, program)
        outputs = function(*arguments)
        self._is_one = not isinstance(outputs, tuple)
        made = [self._result(output, program) for output in ((outputs,) if self._is_one else outputs)]
        for at, output in enumerate(made):
            program.output("o" if self._is_one else f"o{at}", output._parts)
        self._core = program.operator(gate, float(eps))
        self.grades = made[0].grades if self._is_one else tuple(output.grades for output in made)
        self.inputs = self._core.inputs
        self.digest = program.digest()
        self._content = f"{self.digest} {gate} {float(eps)!r}"
        self._register()

    def _register(self) -> None:
        self._key = "" if _own is None else _own.key(self._core, self._content)

    def __copy__(self) -> Operator:
        """The operator itself, as of functions: nothing changes it."""
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Operator:
        return self

    def __getstate__(self) -> dict[str, Any]:
        """The program without the function, which no other process may have."""
        kept = {name: value for name, value in self.__dict__.items() if name not in _OF_FUNCTION}
        return {**kept, "_core": self._core.content}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _core=_core.Operator.of_content(state["_core"]))
        self._register()

    def _result(self, output: Any, program: _core.Program) -> Multivector:
        if isinstance(output, Scalar):
            output = Multivector(self.algebra, output._program, [output._value], (0,))
        if not isinstance(output, Multivector) or output._program is not program:
            raise TypeError(
                f"{self.__name__}: expected a Multivector or a Scalar of its arguments as the result, or a tuple of them, "
                f"got {type(output).__name__}"
            )
        return output

    def _arguments(self, function: Callable[..., Any], program: _core.Program) -> list[Any]:
        name = function.__name__
        annotations = inspect.get_annotations(function, eval_str=True)
        arguments: list[Any] = []
        for parameter in inspect.signature(function).parameters.values():
            kind = annotations.get(parameter.name)
            if kind is Multivector:
                kind = _Grades(range(self.algebra.grade_count))
            elif kind in (PerChannel, PerItem):
                kind = kind()
            if isinstance(kind, _Grades):
                grades = grades_of(self.algebra, parameter.name, kind.grades)
                values = program.input(parameter.name, list(grades or ()))
                arguments.append(Multivector(self.algebra, program, values, grades or ()))
            elif isinstance(kind, (PerChannel, PerItem)):
                count = len(self.algebra.paths) if kind.count == "paths" else int(kind.count)
                if isinstance(kind, PerItem):
                    values = program.numbers(parameter.name, count)
                else:
                    values = program.param(parameter.name, count, kind.scalars)
                scalars = [Scalar(program, value) for value in values]
                arguments.append(scalars[0] if kind.count == 1 else scalars)
            elif kind is Scalars:
                arguments.append(Scalar(program, program.scalars(parameter.name)))
            else:
                _refuse(name, parameter.name, kind)
            self._lanes.append(kind is Scalars or isinstance(kind, (_Grades, PerItem)))
        if True not in self._lanes:
            raise TypeError(f"{name}: expected at least one argument annotated as Multivector")
        return arguments

    def __call__(self, *given: Any) -> Any:
        """The result, ``[blades, *batch, channels]``; a tuple of them if the function returns a tuple.

        Args:
            given: tensors of PyTorch, or arrays of other libraries, in the order of the function. Multivectors are
                ``[blades, *batch, channels]``, parameters ``[channels, count]``.

        Returns:
            Tensors, or arrays of JAX if one of the arguments is one, which can be differentiated; or arrays of the library of the
            first one, forward only, as of :mod:`flashcliff.arrays`.

        Raises:
            TypeError: another number of arguments, what is neither a tensor nor an array, tensors and arrays together, or
                element types that are not supported.
            ValueError: another shape.
            BufferError: an array that its library does not hand out.
            RuntimeError: arrays on different devices.
        """
        if len(given) != len(self._lanes):
            names = ", ".join(name for name, _ in self.inputs)
            raise TypeError(
                f"{self.__name__}: expected {len(self._lanes)} tensors ({names}), got {len(given)}"
            )
        arguments = [
            (name, value, lane) for (name, _), value, lane in zip(self.inputs, given, self._lanes)
        ]
        if _own is not None and _own.is_among(arguments):
            found = _own.call(self.__name__, self._key, arguments)
        elif _of_jax.is_among(arguments):
            found = _of_jax.call(self.__name__, self._core, arguments)
        else:
            found = borrowed.forward(self.__name__, self._core, arguments)
        return found[0] if self._is_one else tuple(found)

    def symmetry(self) -> str:
        """The transformations that the operator is found to commute with.

        The operator is called on the CPU in float64 with random numbers from -1 to 1, before and after random versors act on its
        multivectors, at most 24 times, on two batch elements and three channels. Differences of at most 1e-8 of the largest number
        count as rounding. The numbers are the same each time, and so is the answer. Parameters stay as they are.

        Returns:
            ``"all versors"``: reflections and all products of them, with boosts and translations where the metric has them.
            ``"even versors"``: products of an even number of reflections.
            ``"orthogonal of the Euclidean coordinates"``: reflections and rotations among the vectors that square to +1, and among
            those that square to -1.
            ``"rotations only"``: even products of these.
            ``"none"``: none of these groups.

        Raises:
            UnsupportedError: all vectors of the algebra square to 0, so that there are no versors; or results are not finite.

        >>> import flashcliff
        >>> from flashcliff.operators import Multivector, operator
        >>> @operator(flashcliff.Algebra(1, 3, 0))
        ... def plus_dual(x: Multivector):
        ...     return x + x.dual()
        >>> plus_dual.symmetry()
        'rotations only'
        """
        return self._core.measured_symmetry()

    def __repr__(self) -> str:
        inputs = ", ".join(f"{name} {list(axes)}" for name, axes in self.inputs)
        return f"<operator {self.__name__} of {self.algebra}: {inputs}>"


def _refuse(function: str, parameter: str, kind: Any) -> NoReturn:
    raise TypeError(
        f"{function}: expected `{parameter}` to be annotated as Multivector, Multivector.of(...), Scalars, PerItem(...) or PerChannel(...), "
        f"got {kind!r}"
    )


def operator(
    algebra: AlgebraLike, *, gate: str = "none", eps: float = 1e-6
) -> Callable[[Callable[..., Any]], Operator]:
    """Makes an operator of a function of multivectors.

    The function is called once, when it is decorated. Its arguments say by their annotations what they are: :class:`Multivector`,
    ``Multivector.of(1, 2)`` for some grades, :class:`Scalars` for scalars with another number of channels,
    :class:`PerItem` for numbers of each batch element and channel, :class:`PerChannel` for parameters. It returns
    a :class:`Multivector`, or a :class:`Scalar`, which becomes a multivector of grade 0, or a tuple of these. Errors come from
    the line of the function that they are about.

    Args:
        algebra: the algebra.
        gate: what :meth:`Multivector.gated` and :meth:`Scalar.gate` stand for, as of :func:`flashcliff.functional.sgp_norm`.
        eps: what :meth:`Multivector.normed` adds under the root.

    Raises:
        TypeError: what is not a function, an argument without such an annotation, or another result.
        ValueError: grades that the algebra lacks, or more tensors than kernels have room for.
    """
    of, eps = as_algebra(algebra), checks.epsilon("eps", eps)

    def made(function: Callable[..., Any]) -> Operator:
        if not (callable(function) and hasattr(function, "__name__")):
            raise TypeError(f"operator: expected a function, such as a `def` in the line below, got {function!r}")
        return Operator(function, of, gate, eps)

    return made
