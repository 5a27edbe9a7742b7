"""Operators within programs of JAX: the numbers of PyTorch, derivatives of every order, batches."""

from __future__ import annotations

import doctest
import importlib

import numpy as np
import pytest
import torch
from cases import SPACE
from processes_common import printed

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import flashcliff  # noqa: E402
from flashcliff import functional as F  # noqa: E402
from flashcliff import jax as fj  # noqa: E402
from flashcliff._jax import primitives, which  # noqa: E402
from flashcliff.operators import Multivector, PerChannel, operator  # noqa: E402

pytestmark = [
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore::flashcliff.EquivarianceWarning"),
]

R3 = (3, 0, 0)
ONE_EACH = list({case.name: case for case in reversed(SPACE)}.values())
"""A case of every operator."""

every = pytest.mark.parametrize("case", SPACE, ids=lambda case: case.id)
each = pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: case.name)


def numbers(*shape, seed=0, dtype=np.float64):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def of_case(case, dtype=torch.float64, **sizes):
    """A function of the tensors of a case, and the tensors: of JAX, and of PyTorch."""
    tensors = case.tensors(dtype, grad=True, **sizes)
    names = list(tensors)
    function = getattr(fj, case.name)

    def call(*arrays):
        return function(**dict(zip(names, arrays)), algebra=case.signature, **case.options)

    return call, [jnp.asarray(t.detach().numpy()) for t in tensors.values()], tensors


def same(one, other):
    one, other = np.asarray(one), other.detach().numpy()
    return one.dtype == other.dtype and np.array_equal(one, other)


# The numbers of PyTorch


@pytest.mark.share(3)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@every
def test_outputs_and_gradients_have_the_bits_of_pytorch(case, dtype):
    call, arrays, tensors = of_case(case, dtype)
    output, pullback = jax.vjp(jax.jit(call), *arrays)
    wanted = case.run(**tensors)
    assert same(output, wanted)
    seed = torch.randn_like(wanted)
    gradients = torch.autograd.grad(wanted, list(tensors.values()), seed)
    for got, one in zip(pullback(jnp.asarray(seed.numpy())), gradients):
        assert same(got, one)
    assert same(call(*arrays), wanted)


@each
def test_tangents_have_the_bits_of_pytorch(case):
    call, arrays, tensors = of_case(case)
    along = [torch.randn_like(tensor) for tensor in tensors.values()]
    _, found = jax.jvp(call, arrays, [jnp.asarray(a.numpy()) for a in along])
    names = list(tensors)
    _, wanted = torch.func.jvp(
        lambda *given: case.run(**dict(zip(names, given))),
        tuple(t.detach() for t in tensors.values()),
        tuple(along),
    )
    assert same(found, wanted)


@pytest.mark.share(3)
@each
def test_gradients_of_gradients_have_the_numbers_of_pytorch(case):
    call, arrays, tensors = of_case(case, batch=2)

    def length(function, square):
        return lambda *given: square(function(*given))

    def first(*given):
        grads = jax.grad(length(call, lambda o: (o**3).sum()), tuple(range(len(given))))(*given)
        return sum((grad**2).sum() for grad in grads)

    found = jax.jit(jax.grad(first, tuple(range(len(arrays)))))(*arrays)
    given = list(tensors.values())
    grads = torch.autograd.grad((case.run(**tensors) ** 3).sum(), given, create_graph=True)
    total = sum((grad**2).sum() for grad in grads)
    for got, wanted in zip(found, torch.autograd.grad(total, given)):
        np.testing.assert_allclose(got, wanted.numpy(), rtol=1e-10, atol=1e-10 * float(wanted.abs().max()))


# Derivatives


@pytest.mark.share(3)
@each
def test_derivatives_are_differences(case):
    """First and second ones, in every combination of both modes."""
    call, arrays, _ = of_case(case, batch=2)
    check_grads(call, arrays, order=2, atol=1e-4, rtol=1e-4, eps=1e-5)


def test_third_derivatives_are_differences():
    call = lambda x, y, w: fj.sgp_norm(x, y, w, (2, 0, 0))  # noqa: E731
    given = [numbers(4, 2, 3), numbers(4, 2, 3, seed=1), numbers(3, 10, seed=2)]
    check_grads(call, given, order=3, atol=1e-3, rtol=1e-3)


@pytest.mark.long
def test_hessians_are_symmetric_and_both_ways_agree():
    x, y = numbers(8, 1, 2), numbers(8, 1, 2, seed=1)
    weight = numbers(2, 20, seed=2)

    def energy(x):
        return jnp.sin(fj.sgp_norm(x, y, weight, R3)).sum()

    found = jax.hessian(energy)(x).reshape(x.size, x.size)
    np.testing.assert_allclose(found, found.T, rtol=1e-9, atol=1e-9)
    other = jax.jacrev(jax.jacfwd(energy))(x).reshape(x.size, x.size)
    np.testing.assert_allclose(found, other, rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(jax.jacrev(jax.jacrev(energy))(x).reshape(found.shape), found, atol=1e-9)


def test_gradients_are_those_that_are_asked_for():
    x, y, weight = numbers(8, 3, 4), numbers(8, 3, 4, seed=1), numbers(4, 20, seed=2)

    def loss(y):
        return (fj.sgp_norm(x, y, weight, R3) ** 2).sum()

    program = str(jax.make_jaxpr(jax.grad(loss))(y))
    assert "of=sgp_norm" in program and "wanted=(False, True, False)" in program
    assert "saves=True" in program and "saves=False" not in program
    assert "flashcliff_tangent" not in program
    assert "saves=False" in str(jax.make_jaxpr(loss)(y))


def test_a_gradient_that_is_wrong_is_found(monkeypatch):
    """The checks above tell a backward pass with another sign, and a tangent of another size, from the right ones."""
    x, y = numbers(8, 2, 3), numbers(8, 2, 3, seed=1)
    call = lambda x, y: fj.geometric_product(x, y, R3)  # noqa: E731
    transposes, tangents = jax.interpreters.ad.primitive_transposes, jax.interpreters.ad.primitive_jvps
    transpose, tangent = transposes[primitives.tangent_p], tangents[primitives.operator_p]

    def wrong_transpose(*given, **names):
        return [None if each is None else -each for each in transpose(*given, **names)]

    def wrong_tangent(*given, **names):
        results, found = tangent(*given, **names)
        return results, [2 * each for each in found]

    with monkeypatch.context() as patched:
        patched.setitem(transposes, primitives.tangent_p, wrong_transpose)
        with pytest.raises(AssertionError):
            check_grads(call, (x, y), order=1, modes=["rev"])
    with monkeypatch.context() as patched:
        patched.setitem(tangents, primitives.operator_p, wrong_tangent)
        with pytest.raises(AssertionError):
            check_grads(call, (x, y), order=1, modes=["fwd"])
    check_grads(call, (x, y), order=1)


# Batches


@pytest.mark.share(4)
@each
@pytest.mark.parametrize("of", ["multivectors", "weights"])
def test_batches_are_calls_one_by_one(case, of):
    """Values, gradients of each call, and tangents."""
    lanes = [lane for name, lane in zip(case.op.names, case.op.lanes) if name in case.shapes]
    if of == "weights" and all(lanes):
        pytest.skip("the operator has no weights")
    call, arrays, _ = of_case(case)
    mapped = [lane == (of == "multivectors") for lane in lanes]
    batches = [
        jnp.stack([a * scale for scale in (1.0, -0.5, 2.0)], axis=1) if each else a
        for a, each in zip(arrays, mapped)
    ]
    axes = [1 if each else None for each in mapped]
    places = tuple(range(len(arrays)))

    def value(*given):
        return call(*given)

    def gradient(*given):
        return jax.grad(lambda *g: jnp.sin(call(*g)).sum(), places)(*given)

    def tangent(*given):
        return jax.jvp(call, given, tuple(jnp.cos(g) for g in given))[1]

    for function in (value, gradient, tangent):
        found = jax.jit(jax.vmap(function, axes))(*batches)
        for at in range(3):
            alone = function(*(b[:, at] if each else b for b, each in zip(batches, mapped)))
            for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(alone)):
                np.testing.assert_allclose(got[at], wanted, rtol=1e-12, atol=1e-12)


def test_a_batch_of_multivectors_is_one_call_with_its_bits():
    x, y, weight = numbers(5, 8, 3, 4), numbers(5, 8, 3, 4, seed=1), numbers(4, 20, seed=2)
    function = jax.vmap(lambda x, y: fj.sgp_norm(x, y, weight, R3))
    assert str(jax.make_jaxpr(function)(x, y)).count("flashcliff_operator") == 1
    wanted = fj.sgp_norm(np.moveaxis(x, 0, 1), np.moveaxis(y, 0, 1), weight, R3)
    assert np.array_equal(function(x, y), np.moveaxis(wanted, 1, 0))


@pytest.mark.long
def test_batches_of_batches_of_either_order():
    x, y = numbers(2, 3, 8, 2, 4), numbers(2, 3, 8, 2, 4, seed=1)
    weights = numbers(3, 4, 20, seed=2)

    def energy(x, y, w):
        return jnp.sin(fj.sgp_norm(x, y, w, R3)).sum()

    gradient = jax.grad(energy)
    found = jax.vmap(jax.vmap(gradient), in_axes=(0, 0, None))(x, y, weights)
    other = jax.vmap(jax.vmap(gradient, in_axes=(0, 0, None)), in_axes=(1, 1, 0), out_axes=1)(x, y, weights)
    np.testing.assert_allclose(found, other, rtol=1e-12, atol=1e-12)
    np.testing.assert_allclose(found[1, 2], gradient(x[1, 2], y[1, 2], weights[2]), rtol=1e-12, atol=1e-12)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ["sgp_norm", "mv_linear_sgp_norm"])
def test_what_is_saved_follows_conditions_in_batches(name):
    """A condition in a batch takes from each branch the rows that are its own, what was saved among them."""
    case = next(case for case in SPACE if case.name == name)
    call, arrays, _ = of_case(case)
    xs = jnp.stack([arrays[0], 3 * arrays[0], -arrays[0]])
    choices = jnp.asarray([True, False, True])

    def energy(x, choice):
        return jax.lax.cond(choice, lambda x: jnp.sin(call(x, *arrays[1:])).sum(), lambda x: (call(-2 * x, *arrays[1:]) ** 3).sum(), x)

    found = jax.vmap(jax.grad(energy))(xs, choices)
    for got, x, choice in zip(found, xs, choices):
        np.testing.assert_allclose(got, jax.grad(energy)(x, choice), rtol=1e-12, atol=1e-12)


def test_loops_and_checkpoints():
    x, weight = numbers(8, 3, 4), numbers(4, 20, seed=2)

    def steps(x, times):
        layer = jax.checkpoint(lambda x: x + fj.sgp_norm(x, x, weight, R3))
        return jax.lax.scan(lambda x, _: (layer(x), None), x, length=times)[0]

    def unrolled(x):
        for _ in range(3):
            x = x + fj.sgp_norm(x, x, weight, R3)
        return x

    np.testing.assert_array_equal(jax.jit(steps, static_argnums=1)(x, 3), jax.jit(unrolled)(x))
    one = jax.grad(lambda x: (steps(x, 3) ** 2).sum())(x)
    np.testing.assert_allclose(one, jax.grad(lambda x: (unrolled(x) ** 2).sum())(x), rtol=1e-12, atol=1e-12)


# Shapes, types, errors


def test_any_batch_axes():
    x, y = numbers(8, 2, 3, 4), numbers(8, 2, 3, 4, seed=1)
    whole = fj.geometric_product(x, y, R3)
    assert whole.shape == (8, 2, 3, 4)
    assert np.array_equal(fj.geometric_product(x[:, 1, 2], y[:, 1, 2], R3), whole[:, 1, 2])
    assert fj.geometric_product(x[:, :0], y[:, :0], R3).shape == (8, 0, 3, 4)
    gradient = jax.grad(lambda x: fj.norm(x, R3).sum())(jnp.zeros((8, 0, 4)))
    assert gradient.shape == (8, 0, 4)
    assert jax.vmap(lambda x: fj.norm(x, R3))(jnp.zeros((0, 8, 2, 4))).shape == (0, 1, 2, 4)


@pytest.mark.share(3)
@pytest.mark.parametrize("name", ["reverse", "grade_involution", "clifford_conjugate", "dual", "undual"])
@pytest.mark.parametrize("grades", [(1,), (0, 2), (1, 2, 3), None])
def test_involutions_and_duals_of_some_grades(name, grades):
    count = len(flashcliff.Algebra(3).blades_of(grades or range(4)))
    x = numbers(count, 2, 3)
    wanted = getattr(F, name)(torch.from_numpy(x), R3, grades=grades)
    assert same(getattr(fj, name)(x, R3, grades=grades), wanted)
    check_grads(lambda x: getattr(fj, name)(x, R3, grades=grades), (x,), order=2)


def test_types():
    x, weight = numbers(8, 3, 4), numbers(4, 20)
    assert fj.reverse(x, R3).dtype == jnp.float64
    assert fj.reverse(x.astype(np.float32), R3).dtype == jnp.float32
    for wrong in (np.int32, np.complex64, bool):
        with pytest.raises(TypeError, match="reverse: tensor `x`: expected float32, float64, bfloat16 or float16, got"):
            fj.reverse(x.astype(wrong), R3)
    with pytest.raises(TypeError, match="expected parameters of f64, as the multivectors have, got f32"):
        fj.sgp_norm(x, x, weight.astype(np.float32), R3)
    with pytest.raises(TypeError, match="sgp_norm: tensor `y`: expected f64, as others have, got f32"):
        fj.sgp_norm(x, x.astype(np.float32), weight, R3)
    with pytest.raises(TypeError, match="reverse: tensor `x`: expected float32 or float64 on the CPU, got bfloat16"):
        fj.reverse(jnp.asarray(x, jnp.bfloat16), R3)
    with pytest.raises(TypeError, match="reverse: `x` must be an array of JAX, got list"):
        fj.reverse([1.0], R3)
    with pytest.raises(TypeError, match="reverse: `x` must be an array of JAX, got Tensor"):
        fj.reverse(torch.ones(8, 3, 4), R3)


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit, jax.vmap], ids=["eager", "jit", "vmap"])
def test_wrong_shapes(transform):
    x, weight = numbers(2, 8, 3, 4), numbers(2, 4, 20)
    if transform is not jax.vmap:
        x, weight = x[0], weight[0]
    with pytest.raises(ValueError, match=r"sgp_norm: tensor `weight` must be \[in = 4, 20\], got \[4, 19\]"):
        transform(lambda x, w: fj.sgp_norm(x, x, w, R3))(x, weight[..., :19])
    with pytest.raises(ValueError, match=r"^geometric_product: tensor `y` must be \[blades, 3, channels\], got \[8, 2, 4\]"):
        transform(lambda x: fj.geometric_product(x, x[:, :2], R3))(x)
    with pytest.raises(ValueError, match="^geometric_product: tensor `x` must be"):
        transform(lambda x: fj.geometric_product(x[:7], x, R3))(x)


def test_wrong_options():
    x = numbers(8, 3, 4)
    with pytest.raises(ValueError, match="gate"):
        fj.gate(x, R3, gate="relu")
    with pytest.raises(TypeError, match="eps: expected a number"):
        fj.grade_rms(x, R3, eps="1e-6")
    with pytest.raises(TypeError, match="must be an array of JAX, got NoneType"):
        fj.sgp_norm(x, x, None, R3)


def test_errors_of_calls_come_from_the_handler():
    """What XLA is told to do is checked again where it is done."""
    x = jnp.asarray(numbers(8, 3, 4))
    call = jax.ffi.ffi_call("flashcliff_forward", jax.ShapeDtypeStruct((8, 3, 4), x.dtype))
    of = which.of_row(primitives_row("reverse"), "cl300", (True,), ())
    digest, target = primitives.lowering.target(of, (("tf32", False), ("saved", False)))
    assert np.array_equal(call(x, digest=digest, target=target), fj.reverse(x, R3))
    for wrong, message in (
        ({"digest": digest}, "expected the attribute `target`, a text"),
        ({"digest": "of another", "target": "{}"}, "missing field"),
        ({"digest": digest + "1", "target": target.replace('"steps": ""', '"steps": "q"')}, "expected steps"),
        ({"digest": digest + "2", "target": target.replace("reverse", "revers")}, "revers"),
    ):
        with pytest.raises(Exception, match=message):
            jax.block_until_ready(call(x, **wrong))
    other = jax.ffi.ffi_call("flashcliff_forward", jax.ShapeDtypeStruct((8, 3, 5), x.dtype))
    with pytest.raises(Exception, match=r"the output must be f64 \[8, 3, 4\], got f64 \[8, 3, 5\]"):
        jax.block_until_ready(other(x, digest=digest, target=target))
    with pytest.raises(Exception, match=r"reverse: tensor `x` must be \[8"):
        jax.block_until_ready(call(x[:7], digest=digest, target=target))
    integers = x.astype(jnp.int32)
    with pytest.raises(Exception, match="expected f32, f64, bf16 or f16, got the element type 4 of XLA"):
        jax.block_until_ready(call(integers, digest=digest, target=target))


def primitives_row(name):
    return next(case.op for case in SPACE if case.name == name)


def test_transposes_that_nobody_knows():
    x = jnp.asarray(numbers(8, 3, 4))
    transposed = jax.linear_transpose(lambda x: fj.reverse(x, R3), x)
    assert np.array_equal(transposed(x)[0], fj.reverse(x, R3))
    with pytest.raises(NotImplementedError, match="product: linear in no way that is known here"):
        jax.linear_transpose(lambda y: fj.geometric_product(x, y, R3), x)(x)


# Programs


def test_programs_for_gpus_have_workspaces(monkeypatch):
    """Such a program is made without a GPU here, which would say how large workspaces are."""
    monkeypatch.setattr(primitives.lowering, "ordinals", lambda: [0, 1])
    monkeypatch.setattr(which.Which, "prepare", lambda self, *given: 1000 + 10 * given[-1])
    x, weight = numbers(8, 3, 4), numbers(4, 20)
    linear = numbers(4, 4, 4)

    def loss(x):
        return jnp.sum(fj.sgp_norm(x, fj.mv_linear(x, linear, algebra=R3), weight, R3) ** 2)

    program = jax.jit(jax.grad(loss)).trace(x).lower(lowering_platforms=("cuda",)).as_text()
    calls = [line for line in program.splitlines() if "stablehlo.custom_call" in line]
    assert len(calls) == 4 and all("tensor<1010xui8>" in line for line in calls)
    # XLA may record operators of lanes, not matrix products.
    names = [line.split("@")[1].split("(")[0] for line in calls]
    assert names == [f"flashcliff_{name}" for name in ("forward", "forward_graph", "backward_graph", "backward")]


def test_a_pass_without_gradients_has_room_for_what_it_keeps(monkeypatch):
    """On a GPU the product of the map has no other place."""
    monkeypatch.setattr(primitives.lowering, "ordinals", lambda: [0])
    monkeypatch.setattr(which.Which, "prepare", lambda self, *given: 0)
    x, linear, weight = numbers(8, 3, 4), numbers(4, 4, 4), numbers(4, 20)

    def kept(layer):
        program = jax.jit(layer).trace(x).lower(lowering_platforms=("cuda",)).as_text()
        (call,) = (line for line in program.splitlines() if "stablehlo.custom_call" in line)
        return call.rsplit("->", 1)[1].count("tensor<") - 1

    assert kept(lambda x: fj.mv_linear_sgp_norm(x, linear, None, weight, R3)) == 1
    assert kept(lambda x: fj.sgp_norm(x, x, weight, R3)) == 0


def test_a_workspace_is_not_a_result():
    x = jnp.asarray(numbers(8, 3, 4))
    shapes = (jax.ShapeDtypeStruct(x.shape, x.dtype), jax.ShapeDtypeStruct((100,), jnp.uint8))
    of = which.of_row(primitives_row("reverse"), "cl300", (True,), ())
    digest, target = primitives.lowering.target(of, (("tf32", False), ("saved", False)))
    output, _ = jax.ffi.ffi_call("flashcliff_forward", shapes)(x, digest=digest, target=target)
    assert np.array_equal(output, fj.reverse(x, R3))


def test_the_same_bits_every_time():
    x, y, weight = numbers(8, 300, 16), numbers(8, 300, 16, seed=1), numbers(16, 20, seed=2)
    gradient = jax.jit(jax.grad(lambda w: (fj.sgp_norm(x, y, w, R3) ** 2).sum()))
    first = gradient(weight)
    for threads in (1, 2, 2, 1):
        flashcliff.set_num_threads(threads)
        assert np.array_equal(gradient(weight), first)


def test_programs_are_stored():
    """A stored program names no object of the process that made it."""
    pytest.importorskip("flatbuffers")
    export = importlib.import_module("jax.export")
    x, weight = numbers(8, 3, 4), numbers(4, 20)
    function = jax.jit(jax.grad(lambda x: (fj.sgp_norm(x, x, weight, R3) ** 2).sum()))
    names = ["flashcliff_forward", "flashcliff_backward", "flashcliff_run"]
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in names]
    stored = export.export(function, disabled_checks=checks)(x).serialize()
    program = f"""
import jax, sys
from jax import export
jax.config.update("jax_enable_x64", True)
import jax.numpy as jnp, numpy as np
import flashcliff.jax
assert "torch" not in sys.modules
stored = export.deserialize(bytearray({bytes(stored)!r}))
x = np.random.default_rng(0).standard_normal((8, 3, 4))
print(np.asarray(stored.call(x)).tobytes().hex())
"""
    assert printed(program).strip() == np.asarray(function(x)).tobytes().hex()


def test_sharded_batches():
    """Outputs, and gradients of what shards have and of what all share, which are sums over the shards."""
    program = """
import os
os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"
import jax, jax.numpy as jnp, numpy as np
from jax.sharding import Mesh, PartitionSpec as P
from flashcliff import jax as fj
jax.config.update("jax_enable_x64", True)
shard_map = getattr(jax, "shard_map", None)
if shard_map is None:
    from jax.experimental.shard_map import shard_map
random = np.random.default_rng(0)
x, y, w = (random.standard_normal(shape) for shape in ((8, 8, 4), (8, 2, 4), (4, 20)))
mesh, shared, cut = Mesh(np.array(jax.devices()), ("batch",)), P(), P(None, "batch")

def part(x, y, w):
    return jnp.sin(fj.sgp_norm(y, x, w, (3, 0, 0))).sum()

def whole(x, y, w):
    return sum(part(x[:, at : at + 2], y, w) for at in range(0, 8, 2))

def sharded(x, y, w):
    total = lambda x, y, w: jax.lax.psum(part(x, y, w), "batch")
    return shard_map(total, mesh=mesh, in_specs=(cut, shared, shared), out_specs=shared)(x, y, w)

within = shard_map(jax.grad(part, (0, 1, 2)), mesh=mesh, in_specs=(cut, shared, shared), out_specs=(cut, shared, shared))
wanted = jax.grad(whole, (0, 1, 2))(x, y, w)
for found in (jax.jit(jax.grad(sharded, (0, 1, 2)))(x, y, w), jax.jit(within)(x, y, w)):
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)
square = lambda f: lambda x, y, w: sum((g**2).sum() for g in jax.grad(f, (1, 2))(x, y, w))
second = [jax.jit(jax.grad(square(f), (0, 1, 2)))(x, y, w) for f in (sharded, whole)]
for one, other in zip(*second):
    np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)
print("good")
"""
    assert printed(program) == "good\n"


def test_example_of_the_module():
    jax.config.update("jax_enable_x64", False)
    assert doctest.testmod(fj).failed == 0


# Custom operators


@operator(R3)
def scaled_commutator(scale: PerChannel, x: Multivector, y: Multivector.of(1, 2)):
    return scale * (x * y - y * x), (x >> x).normed()


def for_commutator():
    return numbers(4, 1), numbers(8, 2, 5, 4, seed=1), numbers(6, 2, 5, 4, seed=2)


def test_operators_of_ones_own_have_the_bits_of_pytorch():
    given = for_commutator()
    tensors = [torch.from_numpy(g).requires_grad_() for g in given]
    wanted = scaled_commutator(*tensors)
    arrays = [jnp.asarray(g) for g in given]
    found, pullback = jax.vjp(jax.jit(scaled_commutator), *arrays)
    assert all(map(same, found, wanted))
    seeds = [torch.randn_like(each) for each in wanted]
    grads = torch.autograd.grad(wanted, tensors, seeds)
    assert all(map(same, pullback(tuple(jnp.asarray(s.numpy()) for s in seeds)), grads))
    # The gradient of one result alone.
    one = jax.grad(lambda x: scaled_commutator(arrays[0], x, arrays[2])[1].sum())(arrays[1])
    (other,) = torch.autograd.grad(scaled_commutator(*tensors)[1].sum(), tensors[1])
    assert same(one, other)


def test_derivatives_of_operators_of_ones_own_are_differences():
    check_grads(scaled_commutator, [jnp.asarray(g) for g in for_commutator()], order=2, atol=1e-4, rtol=1e-4)


def test_batches_of_operators_of_ones_own():
    scale, x, y = map(jnp.asarray, for_commutator())
    found = jax.vmap(scaled_commutator, in_axes=(None, 1, 1), out_axes=1)(scale, x, y)
    for got, wanted in zip(found, scaled_commutator(scale, x, y)):
        assert np.array_equal(got, wanted)
