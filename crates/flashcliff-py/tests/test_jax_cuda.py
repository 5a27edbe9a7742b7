"""Operators within programs of JAX on a GPU: the bits of PyTorch there, types of 16 bits, recorded programs."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from cases import SPACE
from network_cases import network
from nn_common import random

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import flashcliff  # noqa: E402
from flashcliff import jax as fj  # noqa: E402


def _has_gpu():
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


pytestmark = [
    pytest.mark.cuda,
    pytest.mark.skipif(not _has_gpu(), reason="JAX finds no GPU"),
    pytest.mark.usefixtures("x64"),
    pytest.mark.filterwarnings("ignore::flashcliff.EquivarianceWarning"),
]

R3 = (3, 0, 0)
every = pytest.mark.parametrize("case", SPACE, ids=lambda case: case.id)
ONE_EACH = list({case.name: case for case in reversed(SPACE)}.values())


def to_jax(tensor):
    """A copy in JAX, of any type."""
    tensor = tensor.detach()
    if tensor.dtype in (torch.bfloat16, torch.float16):
        name = str(tensor.dtype).removeprefix("torch.")
        return jax.device_put(tensor.float().cpu().numpy(), jax.devices("cuda")[0]).astype(name)
    return jax.device_put(tensor.cpu().numpy(), jax.devices("cuda")[0])


def same(one, other):
    return np.array_equal(np.asarray(one.astype(jnp.float64)), other.detach().double().cpu().numpy())


def of_case(case, dtype, **sizes):
    tensors = case.tensors(dtype, device="cuda", grad=True, **sizes)
    names, function = list(tensors), getattr(fj, case.name)

    def call(*arrays):
        return function(**dict(zip(names, arrays)), algebra=case.signature, **case.options)

    return call, [to_jax(tensor) for tensor in tensors.values()], tensors


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@every
def test_outputs_and_gradients_have_the_bits_of_pytorch(case, dtype):
    call, arrays, tensors = of_case(case, dtype, batch=33)
    wanted = case.run(**tensors)
    seed = torch.randn_like(wanted)

    @jax.jit
    def both(arrays, seed):
        output, pullback = jax.vjp(call, *arrays)
        return output, pullback(seed)

    gradients = torch.autograd.grad(wanted, list(tensors.values()), seed)
    # The first runs warm up, and later ones may be replays of a recorded program.
    for _ in range(4):
        output, found = both(arrays, to_jax(seed))
        assert same(output, wanted)
        for got, one in zip(found, gradients):
            assert same(got, one)


@pytest.mark.parametrize("case", ONE_EACH, ids=lambda case: case.name)
def test_derivatives_are_differences(case):
    call, arrays, _ = of_case(case, torch.float64, batch=2)
    check_grads(call, arrays, order=2, atol=1e-4, rtol=1e-4, eps=1e-5)


def test_batches_and_loops():
    x = to_jax(torch.randn(5, 8, 3, 4, dtype=torch.float64))
    weights = to_jax(torch.randn(5, 4, 20, dtype=torch.float64))
    gradient = jax.grad(lambda x, w: jnp.sin(fj.sgp_norm(x, x, w, R3)).sum())
    for axes in ((0, None), (0, 0), (None, 0)):
        given = (x if axes[0] == 0 else x[0], weights if axes[1] == 0 else weights[0])
        found = jax.jit(jax.vmap(gradient, axes))(*given)
        for at in range(5):
            alone = gradient(*(g[at] if axis == 0 else g for g, axis in zip(given, axes)))
            np.testing.assert_allclose(found[at], alone, rtol=1e-10, atol=1e-10)


def test_many_calls_within_one_program():
    """Calls share the memory of workspaces, and their order is that of the program."""
    x = to_jax(torch.randn(8, 257, 16))
    weight = to_jax(0.1 * torch.randn(16, 20))
    linear = to_jax(torch.randn(16, 16, 4))

    def network(x, weight, linear):
        for _ in range(4):
            x = x + fj.sgp_norm(x, fj.mv_linear(x, linear, algebra=R3), weight, R3)
        return (x**2).mean()

    gradient = jax.jit(jax.grad(network, (0, 1, 2)))
    first = gradient(x, weight, linear)
    for _ in range(20):
        assert all(map(np.array_equal, gradient(x, weight, linear), first))


RAGGED = np.array([0, 2, 2, 5, 12])


@pytest.mark.parametrize("longest", [None, 7, "equal"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_networks_are_those_on_the_cpu(dtype, longest, tmp_path):
    module = network((1, 3, 0)).to(dtype)
    flashcliff.save_network(module, tmp_path / "network.safetensors")
    net = fj.load_network(tmp_path / "network.safetensors")
    x = random(12, 35).to(dtype).numpy()

    @jax.jit
    def both(parameters, x, bounds):
        options = {"samples": 3} if longest == "equal" else {"cu_seqlens": bounds, "longest": longest}
        return jax.value_and_grad(lambda p, x: jnp.sin(net(p, tokens=x, **options)).sum(), (0, 1))(parameters, x)

    limit = 1e-10 if dtype == torch.float64 else 2e-4
    places = [jax.device_put((net.parameters, x, RAGGED), jax.devices(name)[0]) for name in ("cpu", "cuda")]
    wanted, *others = (both(*place) for place in (places[0], *[places[1]] * 4))
    for found in others:
        for got, one in zip(jax.tree.leaves(found), jax.tree.leaves(wanted)):
            scale = float(np.abs(one).max()) + 1e-6
            np.testing.assert_allclose(got, one, rtol=limit, atol=limit * scale)


@pytest.mark.parametrize("wrong", [[0, 2, 2, 5, 11], [0, 5, 2, 2, 12], [-1, 2, 2, 5, 12], [0, 1, 1, 4, 12]], ids=str)
def test_wrong_boundaries_give_no_numbers(wrong, tmp_path):
    flashcliff.save_network(network((1, 3, 0)), tmp_path / "network.safetensors")
    net = fj.load_network(tmp_path / "network.safetensors")
    call = jax.jit(lambda p, x, bounds: net(p, tokens=x, cu_seqlens=bounds, longest=7))
    given = jax.device_put((net.parameters, random(12, 35).numpy()), jax.devices("cuda")[0])
    assert np.isfinite(call(*given, RAGGED)).all()
    assert np.isnan(call(*given, np.array(wrong))).all()


def test_second_derivatives_of_networks_are_those_on_the_cpu(tmp_path):
    flashcliff.save_network(network((1, 3, 0)), tmp_path / "network.safetensors")
    net = fj.load_network(tmp_path / "network.safetensors")
    x = random(6, 35).numpy()

    @jax.jit
    def forces(parameters, x):
        def loss(parameters, x):
            found = jax.grad(lambda x: jnp.sin(net(parameters, tokens=x, samples=2)).sum())(x)
            return (found**2).sum()

        return jax.grad(loss, (0, 1))(parameters, x)

    found = [forces(*jax.device_put((net.parameters, x), jax.devices(name)[0])) for name in ("cpu", "cuda")]
    for one, got in zip(*map(jax.tree.leaves, found)):
        np.testing.assert_allclose(got, one, rtol=1e-9, atol=1e-9 * (float(np.abs(one).max()) + 1e-6))


def test_a_program_of_the_cpu_beside_one_of_the_gpu():
    x = np.random.default_rng(0).standard_normal((8, 3, 4))
    square = jax.jit(lambda x: fj.geometric_product(x, x, R3))
    found = [square(jax.device_put(x, jax.devices(name)[0])) for name in ("cpu", "cuda")]
    np.testing.assert_allclose(*map(np.asarray, found), rtol=1e-12, atol=1e-12)
