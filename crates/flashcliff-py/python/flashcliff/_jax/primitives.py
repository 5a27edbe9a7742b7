"""The primitives, their shapes, derivatives and batches (:mod:`flashcliff._jax` says how they hang together)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
from jax.extend.core import Primitive
from jax.interpreters import ad, batching, mlir

from . import lowering
from .batches import Kept, Lane, batched
from .lowering import BACKWARD, FORWARD, RUN
from .which import Which, like

lowering.register()


def _primitive(name: str, *parameters: str) -> Any:
    primitive = Primitive(f"flashcliff_{name}")
    primitive.multiple_results = True
    compiled = jax.jit(lambda *given, **names: primitive.bind(*given, **names), static_argnames=parameters)

    def call(*given, **names):
        # What has no other form than a compiled one is compiled, also where a user turned that off.
        with jax.disable_jit(False):
            return compiled(*given, **names)

    primitive.def_impl(call)
    return primitive


operator_p = _primitive("operator", "of", "saves", "tf32")
tangent_p = _primitive("tangent", "of", "moved", "tf32")
backward_p = _primitive("backward", "of", "wanted", "tf32")


def operator(arrays: Sequence[Any], of: Any, tf32: bool) -> list[Any]:
    """The outputs of an operator, or of a network, which can be differentiated."""
    return bound(operator_p, *arrays, of=of, saves=of.keeps, tf32=tf32)[: len(of.outputs)]


def bound(primitive: Any, *arrays: Any, **parameters: Any) -> list[Any]:
    """The results of a primitive. Within ``jax.shard_map`` its arguments are made to vary over the same axes of the mesh. So the gradient
    of an argument that is the same everywhere is the sum over them."""
    varying = [_axes(array) for array in arrays]
    axes = frozenset[str]().union(*varying)
    given = [
        _varied(array, axes - own) if axes - own else array for array, own in zip(arrays, varying)
    ]
    return list(primitive.bind(*given, **parameters))


def _axes(array: Any) -> frozenset[str]:
    """The axes of a mesh that an array varies over."""
    aval = jax.typeof(array)
    if hasattr(aval, "mat"):
        return aval.mat.varying  # type: ignore[no-any-return]
    # Older versions of JAX.
    return getattr(aval, "vma", frozenset())


def _varied(array: Any, axes: frozenset[str]) -> Any:
    # Versions of JAX have one of two functions, and types of one.
    lax: Any = jax.lax
    if hasattr(lax, "pcast"):
        return lax.pcast(array, tuple(axes), to="varying")
    return lax.pvary(array, tuple(axes))


# Shapes


@operator_p.def_abstract_eval
def _operator_shapes(*avals, of, saves, tf32):
    return [*of.results(avals), *([of.saved(avals, tf32)] if saves else [])]


@tangent_p.def_abstract_eval
def _tangent_shapes(*avals, of, moved, tf32):
    return of.results(avals[: len(moved)])


@backward_p.def_abstract_eval
def _backward_shapes(*avals, of, wanted, tf32):
    return [like(aval, aval.shape) for aval, want in zip(avals, wanted) if want]


# Calls


def _pass_of_operator(of, saves):
    return FORWARD if of.has_passes else RUN, of, {"saved": saves}, len(of.lanes)


def _pass_of_backward(of, wanted):
    rest = {"wanted": wanted, "saved": of.saves, "output": of.reads_output, "linear": of.linear}
    return BACKWARD, of, rest, len(wanted)


lowering.lower(operator_p, _pass_of_operator)
lowering.lower(backward_p, _pass_of_backward)


def _tangent(*arrays, of, moved, tf32):
    """Tangents by the functions that compute them."""
    inputs, _, along = _parts(of, moved, arrays)
    return of.along(lambda given, which: operator(given, which, tf32), moved, inputs, along)


mlir.register_lowering(tangent_p, mlir.lower_fun(_tangent, multiple_results=True))


# Derivatives


def _parts(of: Which, moved: Sequence[bool], values: Sequence[Any]) -> tuple[list[Any], ...]:
    """Inputs, what the backward pass reads besides, and tangents: of the arguments of a tangent."""
    first = len(moved)
    last = len(values) - sum(moved)
    return list(values[:first]), list(values[first:last]), list(values[last:])


def _is_zero(tangent: Any) -> bool:
    return type(tangent) is ad.Zero


def _zeros(arrays: Sequence[Any]) -> list[Any]:
    return [ad.Zero(jax.typeof(array).to_tangent_aval()) for array in arrays]


def _moved(tangents: Sequence[Any]) -> tuple[tuple[bool, ...], list[Any]]:
    moved = tuple(not _is_zero(tangent) for tangent in tangents)
    return moved, [tangent for tangent in tangents if not _is_zero(tangent)]


def _along(inputs, read, tangents, of, tf32):
    """The tangents of outputs by the tangents of inputs, some of which may be zeros."""
    moved, along = _moved(tangents)
    return bound(tangent_p, *inputs, *read, *along, of=of, moved=moved, tf32=tf32)


def _operator_jvp(inputs, tangents, *, of, saves, tf32):
    count, own = len(of.outputs), of.keeping(_moved(tangents)[0])
    results = bound(operator_p, *inputs, of=own, saves=own.saves, tf32=tf32)
    outputs, saved = results[:count], results[count:]
    if all(map(_is_zero, tangents)):
        found = _zeros(outputs)
    elif of.linear:
        found = bound(operator_p, *tangents, of=of, saves=False, tf32=tf32)
    else:
        read = [*(outputs if own.reads_output else ()), *saved]
        found = _along(inputs, read, tangents, own, tf32)
    if not saves:
        return outputs, found
    if own != of:
        # An earlier backward pass, for other inputs, reads what was asked for.
        saved = bound(operator_p, *inputs, of=of, saves=True, tf32=tf32)[count:]
    # Derivatives treat a backward pass as a function of inputs and gradients, whatever it reads.
    return [*outputs, *saved], [*found, *_zeros(saved)]


def _operator_transpose(cotangents, *_, of, saves, tf32):
    """Programs of derivatives call only linear operators with what is linear; ``jax.linear_transpose`` may call others."""
    if not of.linear:
        raise NotImplementedError(f"{of}: linear in no way that is known here; take the transpose of jax.vjp or jax.linearize")
    (grad,) = cotangents
    if _is_zero(grad):
        return [None]
    return bound(backward_p, grad, of=of, wanted=(True,), tf32=tf32)


def _tangent_jvp(values, tangents, *, of, moved, tf32):
    results = bound(tangent_p, *values, of=of, moved=moved, tf32=tf32)
    inputs, read, along = _parts(of, moved, values)
    of_inputs, _, of_along = _parts(of, moved, tangents)
    if all(map(_is_zero, [*of_inputs, *of_along])):
        return results, _zeros(results)
    of_each = _in_place(moved, of_along, lambda x: _zeros([x])[0], inputs)
    if all(map(_is_zero, of_inputs)):
        return results, _along(inputs, read, of_each, of, tf32)
    return _general_jvp(
        lambda *arrays: _tangent(*arrays, of=of, moved=moved, tf32=tf32),
        [*inputs, *read, *along],
        [*of_inputs, *_zeros(read), *of_along],
    )


def _general_jvp(function, arrays, tangents):
    """The results of a function of arrays, and their tangents; some tangents are zeros."""
    moved, along = _moved(tangents)

    def of_moved(*some):
        return function(*_in_place(moved, some, lambda array: array, arrays))

    primals = [array for array, move in zip(arrays, moved) if move]
    return jax.jvp(of_moved, tuple(primals), tuple(along))


def _in_place(
    moved: Sequence[bool], given: Sequence[Any], other: Callable[[Any], Any], inputs: Sequence[Any]
) -> list[Any]:
    """One value for each input: that which is given where it moved, or another."""
    following: Iterator[Any] = iter(given)
    return [next(following) if move else other(x) for move, x in zip(moved, inputs)]


def _tangent_transpose(cotangents, *values, of, moved, tf32):
    inputs, read, along = _parts(of, moved, values)
    needed = _in_place(moved, [ad.is_undefined_primal(v) for v in along], lambda _: False, inputs)
    there, grads = _moved(cotangents)
    if not grads:
        return [None] * len(values)
    if of.has_passes:
        made = of.wants(needed)
        found = bound(backward_p, *inputs, *read, *grads, of=of, wanted=made, tf32=tf32)
    else:
        gradient, by_needed = of.gradient(there, needed)
        made = _in_place(needed, by_needed, lambda _: False, inputs)
        found = operator([*inputs, *grads], gradient, tf32) if any(made) else []
    by_input = _in_place(made, found, lambda _: None, inputs)
    by_along = [own for own, move in zip(by_input, moved) if move]
    wanted = [own if ad.is_undefined_primal(v) else None for own, v in zip(by_along, along)]
    return [*(None for _ in (*inputs, *read)), *wanted]


def _backward_parts(of, wanted, values):
    """Inputs, what is read besides, and the gradient: of the arguments of a backward pass."""
    *given, grad = values
    first = 0 if of.linear else len(wanted)
    return given[:first], given[first:], grad


def _backward_jvp(values, tangents, *, of, wanted, tf32):
    results = bound(backward_p, *values, of=of, wanted=wanted, tf32=tf32)
    inputs, read, grad = _backward_parts(of, wanted, values)
    of_inputs, _, of_grad = _backward_parts(of, wanted, tangents)
    if all(map(_is_zero, of_inputs)):
        if _is_zero(of_grad):
            return results, _zeros(results)
        return results, bound(backward_p, *inputs, *read, of_grad, of=of, wanted=wanted, tf32=tf32)
    gradient, _ = of.gradient((True,), wanted)
    return results, _along([*inputs, grad], [], [*of_inputs, of_grad], gradient, tf32)


def _backward_transpose(cotangents, *values, of, wanted, tf32):
    inputs, read, _ = _backward_parts(of, wanted, values)
    _, along = _moved(cotangents)
    if not along:
        found = [None]
    elif of.linear:
        found = bound(operator_p, *along, of=of, saves=False, tf32=tf32)
    else:
        following = iter(cotangents)
        each = [next(following) if want else ad.Zero(None) for want in wanted]
        found = _along(inputs, read, each, of, tf32)
    return [*(None for _ in (*inputs, *read)), *found]


ad.primitive_jvps[operator_p] = _operator_jvp
ad.primitive_jvps[tangent_p] = _tangent_jvp
ad.primitive_jvps[backward_p] = _backward_jvp
ad.primitive_transposes[operator_p] = _operator_transpose
ad.primitive_transposes[tangent_p] = _tangent_transpose
ad.primitive_transposes[backward_p] = _backward_transpose


# Batches


def _kinds(lanes: Sequence[bool]) -> list[Any]:
    return [Lane if lane else None for lane in lanes]


def _kinds_read(of: Which, inputs: Sequence[Any], dims: Sequence[int | None]) -> list[Any]:
    """The kinds of what the backward pass reads besides the inputs."""
    output = [Lane] if of.reads_output else []
    if not of.saves:
        return output
    if True not in of.lanes:
        return [None] * (len(output) + 1)
    if of.core.kept is None:
        return [*output, Lane]
    lane = inputs[of.lanes.index(True)]
    if lane.dtype.itemsize < 4:
        # Elements of 16 bits lie in pairs.
        return [*output, None]
    shapes = [
        x.shape if dim is None else (*x.shape[:dim], *x.shape[dim + 1 :]) for x, dim in zip(inputs, dims)
    ]
    return [*output, Kept.of(of, shapes)]


def _bind(primitive, parameters):
    return lambda *arrays: bound(primitive, *arrays, **parameters)


def _operator_batch(arrays, dims, **parameters):
    of = parameters["of"]
    saved = _kinds_read(of, arrays, dims)[-1:] if parameters["saves"] else []
    made = [*_kinds(of.outputs), *saved]
    return batched(_bind(operator_p, parameters), _kinds(of.lanes), made, arrays, dims)


def _tangent_batch(arrays, dims, **parameters):
    of, moved = parameters["of"], parameters["moved"]
    inputs, read, _ = _parts(of, moved, arrays)
    kinds = _kinds(of.lanes)
    of_read = _kinds_read(of, inputs, dims) if read else []
    along = [kind for kind, move in zip(kinds, moved) if move]
    given = [*kinds, *of_read, *along]
    return batched(_bind(tangent_p, parameters), given, _kinds(of.outputs), arrays, dims)


def _backward_batch(arrays, dims, **parameters):
    of, wanted = parameters["of"], parameters["wanted"]
    inputs, read, _ = _backward_parts(of, wanted, arrays)
    kinds = _kinds(of.lanes)
    of_read = _kinds_read(of, inputs, dims) if read else []
    given = [*(kinds if inputs else ()), *of_read, Lane]
    made = [kind for kind, want in zip(kinds, wanted) if want]
    return batched(_bind(backward_p, parameters), given, made, arrays, dims)


batching.primitive_batchers[operator_p] = _operator_batch
batching.primitive_batchers[tangent_p] = _tangent_batch
batching.primitive_batchers[backward_p] = _backward_batch
