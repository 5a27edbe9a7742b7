"""Checks for models of your own: that they are equivariant, and that their forces conserve energy.

Both draw random cases, raise an ``AssertionError`` that has the numbers, and return the numbers that they found. Run them in
float64, where rounding hides nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from . import _torch as _torch
from ._ops import checks
from .algebra import Algebra, AlgebraLike, as_algebra

__all__ = ["Conservation", "check_conservation", "check_equivariance"]

KINDS = ("multivector", "vector", "invariant")
"""The kinds of tensors that a model takes and gives."""

_SHORTEST = 0.3
"""The smallest square of a vector to reflect in, relative to that of its numbers: others stretch beyond what can be compared."""


def check_equivariance(
    function: Callable[..., Any],
    algebra: AlgebraLike,
    *inputs: Tensor,
    of: str | Sequence[str] = "multivector",
    to: str | Sequence[str] = "multivector",
    reflections: bool = True,
    count: int = 3,
    tolerance: float | None = None,
    seed: int = 0,
) -> float:
    """Checks that a function commutes with the reflections and rotations of an algebra, with its boosts and translations too.

    A reflection in a vector v takes a multivector x to v a(x) / v, where a is the grade involution. Products of reflections are all
    isometries that versors make; even ones are rotations.

    Args:
        function: a layer or a model, from the inputs to a tensor or to several.
        algebra: such as ``flashcliff.Algebra(3)``.
        inputs: tensors of the kinds ``of``.
        of: the kind of the inputs, or one for each: ``"multivector"``, ``[blades, *batch, channels]`` of all grades; ``"vector"``,
            ``[..., dim]``, such as positions; ``"invariant"``, which stays as it is.
        to: the kind of the outputs, or one for each.
        reflections: whether odd products are drawn too. Duals and the join are equivariant by rotations alone.
        count: the number of versors that are drawn.
        tolerance: the largest allowed difference, relative to the largest number of an output; a power of the rounding of its
            element type by default.
        seed: the seed of the versors.

    Returns:
        The largest difference that was found.

    Raises:
        AssertionError: the function is not equivariant.

    >>> import torch
    >>> from flashcliff import Algebra, nn, testing
    >>> space = Algebra(3)
    >>> layer = nn.MVLinear(space, 4, 4).double()
    >>> x = torch.randn(8, 5, 4, dtype=torch.float64)
    >>> testing.check_equivariance(layer, space, x) < 1e-12
    True
    """
    found = as_algebra(algebra)
    kinds = _kinds("of", of, len(inputs))
    for kind, tensor in zip(kinds, inputs):
        _check_input(found, kind, tensor)
    count = checks.integer("count", count)
    if count < 1:
        raise ValueError(f"count: expected at least 1, got {count}")
    generator = torch.Generator().manual_seed(checks.integer("seed", seed))
    plain = _outputs(function(*inputs))
    after = _kinds("to", to, len(plain))
    worst = 0.0
    for at in range(count):
        vectors = 2 if not checks.flag("reflections", reflections) else 1 + at % 3
        matrix = _isometry(found, vectors, generator)
        turned = _outputs(function(*(_act(matrix, found, *pair) for pair in zip(kinds, inputs))))
        for index, (kind, one, two) in enumerate(zip(after, plain, turned, strict=True)):
            error = _difference(two, _act(matrix, found, kind, one))
            allowed = _tolerance(one, tolerance, 0.5)
            if not error <= allowed:
                raise AssertionError(
                    f"check_equivariance: output {index} is not equivariant under a product of {vectors} reflections: it is off "
                    f"by {error:.1e} of its largest number, allowed are {allowed:.1e}"
                )
            worst = max(worst, error)
    return worst


class Conservation(NamedTuple):
    """The result of :func:`check_conservation`."""

    gradient: float
    """The difference of the forces from minus the gradient of the energy, relative to the largest force."""
    curl: float
    """The asymmetry of the Jacobian of the forces, relative to its size."""
    drift: float
    """The largest change of the whole energy in the simulation, relative to the first kinetic energy."""
    order: float
    """The power of the time step with which the change falls: 2 for this method; infinite if it is at the rounding already."""


def check_conservation(
    energy: Callable[[Tensor], Tensor],
    positions: Tensor,
    *,
    forces: Callable[[Tensor], Tensor] | None = None,
    steps: int = 20,
    time_step: float = 0.01,
    drift: float = 1e-2,
    tolerance: float | None = None,
    seed: int = 0,
) -> Conservation:
    """Checks that forces conserve an energy.

    Three things are checked: the Jacobian of the forces is symmetric, so that they have no curl; they are minus the gradient of the
    energy; and a simulation of particles of mass 1 (velocity Verlet) keeps the whole energy, up to what falls with the square of the time
    step. The Jacobian of forces needs the second derivatives of the model.

    Args:
        energy: a function of positions that gives one number.
        positions: floating-point numbers of any shape.
        forces: the forces of a model that predicts them beside the energy; minus the gradient of ``energy`` by default.
        steps: the number of steps of the simulation, at least 1.
        time_step: the length of a step. A second simulation takes steps of half this length.
        drift: the largest allowed change of the whole energy, relative to the first kinetic energy.
        tolerance: the largest allowed difference of forces and asymmetry of the Jacobian; a power of the rounding of the element
            type by default.
        seed: the seed of velocities and directions.

    Returns:
        The numbers.

    Raises:
        AssertionError: the forces do not conserve the energy.

    >>> import torch
    >>> from flashcliff import testing
    >>> spring = lambda x: ((x[0] - x[1]).norm() - 1).square()
    >>> x = torch.tensor([[0.0, 0, 0], [0, 0, 1.2]], dtype=torch.float64)
    >>> found = testing.check_conservation(spring, x)
    >>> found.curl < 1e-12, round(found.order)
    (True, 2)
    """
    if not isinstance(positions, Tensor) or not positions.is_floating_point():
        got = positions.dtype if isinstance(positions, Tensor) else type(positions).__name__
        raise TypeError(f"positions: expected a tensor of floating-point numbers, got {got}")
    steps, time_step = checks.integer("steps", steps), checks.number("time_step", time_step)
    if steps < 1 or not (math.isfinite(time_step) and time_step > 0):
        raise ValueError(
            f"steps and time_step: expected at least one step of a positive length, got {steps} of {time_step}"
        )
    generator = torch.Generator().manual_seed(checks.integer("seed", seed))
    positions = positions.detach()
    of_energy = _forces_of(energy)
    by = of_energy if forces is None else forces
    allowed = _tolerance(positions, tolerance, 0.7)
    curl = max(_asymmetry(by, positions, generator) for _ in range(3))
    _demand(
        curl,
        allowed,
        "the Jacobian of the forces is not symmetric, so they are not a gradient",
        "its size",
    )
    gradient = _difference(by(positions), of_energy(positions))
    _demand(
        gradient, allowed, "forces are not minus the gradient of the energy", "the largest force"
    )
    velocities = _drawn(positions, generator)
    whole, half = (
        _simulated(energy, by, positions, velocities, steps * parts, time_step / parts)
        for parts in (1, 2)
    )
    _demand(
        whole,
        drift,
        "the energy changes in a simulation",
        "the kinetic energy; shorter steps may help",
    )
    order = _order(whole, half, 1e3 * torch.finfo(positions.dtype).eps)
    if order < 1.5:
        raise AssertionError(
            f"check_conservation: the change of the energy falls from {whole:.1e} to {half:.1e} with half the time step, "
            f"by a power of {order:.1f}; expected 2, which shorter steps may come near to, unless the energy has kinks"
        )
    return Conservation(gradient, curl, whole, order)


# Kinds of tensors


def _kinds(name: str, given: str | Sequence[str], count: int) -> tuple[str, ...]:
    kinds = (given,) * count if isinstance(given, str) else tuple(given)
    for kind in kinds:
        if kind not in KINDS:
            raise ValueError(f"{name}: expected one of {', '.join(KINDS)}, got {kind!r}")
    if len(kinds) != count:
        raise ValueError(f"{name}: expected a kind for each of {count} tensors, got {len(kinds)}")
    return kinds


def _check_input(algebra: Algebra, kind: str, tensor: Any) -> None:
    if not isinstance(tensor, Tensor):
        raise TypeError(f"check_equivariance: expected tensors, got {type(tensor).__name__}")
    _check_shape(algebra, kind, tensor)


def _check_shape(algebra: Algebra, kind: str, tensor: Tensor) -> None:
    shape = list(tensor.shape)
    if kind == "multivector" and (tensor.dim() < 1 or shape[0] != algebra.blade_count):
        raise ValueError(
            f"check_equivariance: a multivector must be [{algebra.blade_count}, ...], got {shape}"
        )
    if kind == "vector" and (tensor.dim() < 1 or shape[-1] != algebra.dim):
        raise ValueError(f"check_equivariance: a vector must be [..., {algebra.dim}], got {shape}")


def _outputs(result: Any) -> tuple[Tensor, ...]:
    found = result if isinstance(result, tuple | list) else (result,)
    for each in found:
        if not isinstance(each, Tensor):
            raise TypeError(
                "function: expected one that gives a tensor, or a tuple or list of tensors, got "
                + type(each).__name__
            )
    return tuple(found)


# Isometries


def _isometry(algebra: Algebra, vectors: int, generator: torch.Generator) -> Tensor:
    """The matrix ``[blades, blades]`` of a product of reflections, from right to left."""
    table = torch.zeros([algebra.blade_count] * 3, dtype=torch.float64)
    for left, right, output, sign in algebra.terms():
        table[left, right, output] = sign
    involution = torch.tensor([(-1.0) ** grade for grade in algebra.grades], dtype=torch.float64)
    matrix = torch.eye(algebra.blade_count, dtype=torch.float64)
    for _ in range(vectors):
        vector, square = _vector(algebra, table, generator)
        by_left = torch.einsum("i,ijk->kj", vector, table)
        by_right = torch.einsum("j,ijk->ki", vector / square, table)
        matrix = by_right @ by_left @ (involution[:, None] * matrix)
    return matrix


def _vector(algebra: Algebra, table: Tensor, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """A random vector as a multivector, and its square, which is not near 0."""
    if not any(table[at, at, 0] for at in range(1, 1 + algebra.dim)):
        raise ValueError(
            f"check_equivariance: expected an algebra with reflections, got {algebra!r}"
        )
    while True:
        vector = torch.zeros(algebra.blade_count, dtype=torch.float64)
        drawn = torch.randn(algebra.dim, generator=generator, dtype=torch.float64)
        vector[1 : 1 + algebra.dim] = drawn
        square = torch.einsum("i,j,ij->", vector, vector, table[..., 0])
        if square.abs() > _SHORTEST * vector.square().sum():
            return vector, square


def _act(matrix: Tensor, algebra: Algebra, kind: str, tensor: Tensor) -> Tensor:
    """A tensor of a kind after an isometry."""
    _check_shape(algebra, kind, tensor)
    if kind == "invariant":
        return tensor
    if kind == "vector":
        part = matrix[1 : 1 + algebra.dim, 1 : 1 + algebra.dim]
        return tensor @ part.to(tensor).mT
    return torch.tensordot(matrix.to(tensor), tensor, dims=1)


# Numbers


def _difference(found: Tensor, wanted: Tensor) -> float:
    """The largest difference, relative to the largest number; not a number if something is."""
    if found.shape != wanted.shape:
        raise ValueError(
            f"expected tensors of one shape, got {list(found.shape)} and {list(wanted.shape)}"
        )
    if not wanted.numel():
        return 0.0
    scale = wanted.abs().max().clamp_min(torch.finfo(wanted.dtype).tiny)
    return float(((found - wanted).abs().max() / scale).detach())


def _tolerance(tensor: Tensor, given: float | None, power: float) -> float:
    if given is not None:
        return checks.epsilon("tolerance", given)
    return float(torch.finfo(tensor.dtype).eps ** power)


def _demand(value: float, allowed: float, what: str, relative: str) -> None:
    if not value <= allowed:
        raise AssertionError(
            f"check_conservation: {what}: off by {value:.1e} of {relative}, allowed are {allowed:.1e}"
        )


# Forces


def _forces_of(energy: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Minus the gradient, which can be differentiated again."""

    def forces(positions: Tensor) -> Tensor:
        with torch.enable_grad():
            x = positions if positions.requires_grad else positions.detach().requires_grad_()
            value = _number(energy, x)
            _check_graph("energy", value)
            return -torch.autograd.grad(value, x, create_graph=True)[0]

    return forces


def _number(energy: Callable[[Tensor], Tensor], positions: Tensor) -> Tensor:
    value = energy(positions)
    if not isinstance(value, Tensor) or value.numel() != 1:
        got = list(value.shape) if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(f"energy: expected a tensor with one number, got {got}")
    return value.reshape(())


def _check_graph(name: str, value: Any) -> None:
    """Raises for what PyTorch cannot differentiate: a check of it would prove nothing."""
    if not isinstance(value, Tensor):
        raise TypeError(
            f"{name}: expected a function that gives a tensor, got {type(value).__name__}"
        )
    if not value.requires_grad:
        raise ValueError(
            f"{name}: expected a result that PyTorch can differentiate by positions, got one that does not depend on them, or whose "
            "graph was cut, as by `detach()`, `.item()` or `torch.no_grad()`"
        )


def _asymmetry(
    forces: Callable[[Tensor], Tensor], positions: Tensor, generator: torch.Generator
) -> float:
    """The difference of ``u J v`` and ``v J u`` for random directions, relative to the lengths of ``u J`` and ``v J``."""
    x = positions.detach().requires_grad_()
    with torch.enable_grad():
        found = forces(x)
    _check_graph("forces", found)
    u, v = _drawn(positions, generator), _drawn(positions, generator)
    rows = [
        torch.autograd.grad((found * each).sum(), x, retain_graph=True, materialize_grads=True)[0]
        for each in (u, v)
    ]
    scale = float(rows[0].norm() * v.norm() + rows[1].norm() * u.norm()) / 2
    difference = float(((rows[0] * v).sum() - (rows[1] * u).sum()).abs())
    return difference / scale if scale else 0.0


def _simulated(
    energy: Callable[[Tensor], Tensor],
    forces: Callable[[Tensor], Tensor],
    positions: Tensor,
    velocities: Tensor,
    steps: int,
    time_step: float,
) -> float:
    """The largest change of the whole energy by velocity Verlet, relative to the first kinetic energy."""

    def whole() -> float:
        return float(_number(energy, positions).detach()) + float(velocities.square().sum()) / 2

    kinetic = float(velocities.square().sum()) / 2
    start, worst = whole(), 0.0
    force = forces(positions).detach()
    for _ in range(steps):
        velocities = velocities + time_step / 2 * force
        positions = positions + time_step * velocities
        force = forces(positions).detach()
        velocities = velocities + time_step / 2 * force
        change = abs(whole() - start)
        # A number that is none stays.
        worst = max(worst, change) if change == change else change
    return worst / kinetic if kinetic else 0.0


def _order(whole: float, half: float, floor: float) -> float:
    """The power of the time step with which a change falls."""
    return math.inf if half <= floor else math.log2(whole / half)


def _drawn(like: Tensor, generator: torch.Generator) -> Tensor:
    return torch.randn(like.shape, generator=generator, dtype=torch.float64).to(like)
