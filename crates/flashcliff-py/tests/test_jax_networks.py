"""Networks of files within programs of JAX: the bits of the modules of PyTorch, derivatives, relations."""

from __future__ import annotations

import importlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from nn_common import disturb, random
from test_files import GATR, LGATR, RECEIVERS, SENDERS, apart, leaf, network, tokens
from test_load_network import rewritten

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import flashcliff  # noqa: E402
from flashcliff import jax as fj  # noqa: E402
from flashcliff import nn  # noqa: E402
from flashcliff.graphs import Relation  # noqa: E402

pytestmark = pytest.mark.usefixtures("x64")


@pytest.fixture
def loaded(tmp_path):
    """Saves a module, and loads its network."""

    def load(module, **options):
        flashcliff.save_network(module, tmp_path / "network.safetensors", **options)
        return fj.load_network(tmp_path / "network.safetensors")

    return load


def array(tensor):
    return jnp.asarray(tensor.detach().numpy())


def same(one, other):
    other = other.detach().numpy()
    return one.dtype == other.dtype and np.array_equal(np.asarray(one).reshape(other.shape), other)


def compare(net, given, out, leaves, **more):
    """Compares the result of a network and all gradients with those of a module."""
    inputs = {name: array(tensor) for name, tensor in given.items()}
    result, pullback = jax.vjp(jax.jit(lambda p, x: net(p, **x, **more)), net.parameters, inputs)
    assert same(result, out)
    seed = torch.randn_like(out)
    right = torch.autograd.grad(out, [*given.values(), *leaves.values()], seed)
    of_parameters, of_inputs = pullback(array(seed))
    found = {**of_inputs, **of_parameters}
    for name, wanted in zip((*given, *leaves), right):
        assert same(found[name], wanted), name


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_transformers_have_the_bits_of_pytorch(signature, dtype, loaded):
    module = network(signature, affine=True, scalar_activation="gelu").to(dtype)
    rows = leaf(random(3 * 4, 16 * 2 + 3).to(dtype))
    mv, s = apart(rows, (3, 4), (2, 3))
    given, more = {"tokens": rows}, {}
    if module.geometry.join:
        given["reference"] = leaf(random(12, seed=1).to(dtype))
        more["reference"] = given["reference"].view(3, 4, 1)
    net = loaded(module)
    assert net.inputs["tokens"] == ("rows", "35")
    assert net.parameters.keys() == dict(module.named_parameters()).keys()
    compare(net, given, tokens(*module(mv, s, **more)), dict(module.named_parameters()), samples=3)


def test_bodies_on_graphs(loaded):
    module = disturb(nn.models.NBody(3, 2, dtype=torch.float64))
    graph = torch.tensor([0, 0, 1, 0, 1, 1])
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    bodies = leaf(random(6, 1, 7))
    charges, positions, velocities = bodies[:, 0].split([1, 3, 3], -1)
    out = module(charges[:, 0], positions, velocities, ends, Relation(graph, 2)).T[..., None]
    net = loaded(module)
    assert net.relations == {
        "receivers": ("edges", "rows"),
        "senders": ("edges", "rows"),
        "graphs": ("rows", "graphs"),
    }
    relations = dict(zip(net.relations, map(array, (RECEIVERS, SENDERS, graph))))

    def call(parameters, x):
        # Graphs are the name of a relation and of the number of its targets.
        return net(parameters, bodies=x, graph_count=2, **relations)

    result, pullback = jax.vjp(jax.jit(call), net.parameters, array(bodies))
    assert same(result, out)
    seed = torch.randn_like(out)
    leaves = dict(module.named_parameters())
    right = torch.autograd.grad(out, [bodies, *leaves.values()], seed)
    of_parameters, of_bodies = pullback(array(seed))
    for got, wanted in zip((of_bodies, *(of_parameters[name] for name in leaves)), right):
        # The module differentiates each layer by itself, and adds in another order.
        np.testing.assert_allclose(np.asarray(got).ravel(), wanted.numpy().ravel(), rtol=1e-9, atol=1e-10)
    check_grads(lambda x: call(net.parameters, x), (array(bodies),), order=2, eps=1e-5, atol=1e-4, rtol=1e-4)


def test_derivatives_of_transformers_are_differences(loaded):
    net = loaded(network(LGATR))
    x = array(random(6, 35))
    call = lambda p, x: net(p, tokens=x, samples=2)  # noqa: E731
    check_grads(call, (net.parameters, x), order=1, eps=1e-5, atol=1e-4, rtol=1e-4)
    check_grads(lambda x: call(net.parameters, x), (x,), order=2, modes=["rev"], eps=1e-5, atol=1e-4, rtol=1e-4)

    def forces(parameters, x):
        """A loss of gradients, as of forces."""
        found = jax.grad(lambda x: jnp.sin(call(parameters, x)).sum())(x)
        return (found**2).sum()

    check_grads(forces, (net.parameters, x), order=1, modes=["rev"], eps=1e-5, atol=1e-3, rtol=1e-3)


def test_hessians_of_transformers(loaded):
    """Forward over reverse takes second derivatives in the other order."""
    net = loaded(network(LGATR, blocks=1))
    x = array(random(2, 35))

    def energy(x):
        return jnp.sin(net(net.parameters, tokens=x)).sum()

    found = jax.hessian(energy)(x).reshape(x.size, x.size)
    np.testing.assert_allclose(found, jax.jacrev(jax.grad(energy))(x).reshape(found.shape), rtol=1e-9, atol=1e-10)
    along = jnp.cos(x)
    _, by_both = jax.jvp(
        lambda x, s: jax.vjp(lambda x: net(net.parameters, tokens=x), x)[1](s)[0],
        (x, jnp.ones((2, 50))),
        (along, jnp.full((2, 50), 0.5)),
    )
    step = 1e-5

    def pulled(at):
        return jax.vjp(lambda x: net(net.parameters, tokens=x), x + at * along)[1](jnp.full((2, 50), 1 + 0.5 * at))[0]

    np.testing.assert_allclose(by_both, (pulled(step) - pulled(-step)) / (2 * step), rtol=1e-5, atol=1e-6)


def test_what_has_no_third_derivatives_says_so(loaded):
    net = loaded(network(LGATR, blocks=1))
    x = array(random(2, 35))
    with pytest.raises(flashcliff.UnsupportedError, match="second derivatives"):
        jax.jacfwd(jax.jacfwd(jax.grad(lambda x: net(net.parameters, tokens=x).sum())))(x)


def test_batches_are_loops(loaded):
    net = loaded(network(LGATR, blocks=1))
    x = array(random(3, 4, 35))
    gradient = jax.grad(lambda p, x: jnp.sin(net(p, tokens=x)).sum(), (0, 1))
    found = jax.jit(jax.vmap(gradient, (None, 0)))(net.parameters, x)
    for at in range(3):
        alone = gradient(net.parameters, x[at])
        for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves(alone)):
            np.testing.assert_array_equal(got[at], wanted)
    # A batch of samples is one call.
    whole = net(net.parameters, tokens=x.reshape(12, 35), samples=3)
    one = net(net.parameters, tokens=x[1])
    np.testing.assert_allclose(whole[4:8], one, rtol=1e-12, atol=1e-12)


def test_programs_are_stored(loaded, tmp_path):
    """Another process runs the gradient, without the file of the network and without PyTorch."""
    pytest.importorskip("flatbuffers")
    export = importlib.import_module("jax.export")
    net = loaded(network(LGATR, blocks=1))
    x = array(random(4, 35))
    gradient = jax.jit(jax.grad(lambda x, p: jnp.sin(net(p, tokens=x)).sum()))
    checks = [export.DisabledSafetyCheck.custom_call("flashcliff_network")]
    stored = export.export(gradient, disabled_checks=checks)(x, net.parameters)
    (tmp_path / "program").write_bytes(stored.serialize())
    np.savez(tmp_path / "arrays.npz", x=x, **net.parameters)
    program = """
import sys
import jax, numpy as np
from jax import export
jax.config.update("jax_enable_x64", True)
import flashcliff.jax
folder = sys.argv[1]
stored = export.deserialize(bytearray(open(f"{folder}/program", "rb").read()))
arrays = dict(np.load(f"{folder}/arrays.npz"))
print(np.asarray(stored.call(arrays.pop("x"), arrays)).tobytes().hex())
assert "torch" not in sys.modules
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.stdout.strip() == np.asarray(gradient(x, net.parameters)).tobytes().hex(), done.stderr


def test_wrong_calls(loaded):
    net = loaded(network(LGATR, blocks=1))
    x = array(random(6, 35))
    with pytest.raises(TypeError, match="network: expected inputs and relations tokens, got none"):
        net(net.parameters)
    with pytest.raises(TypeError, match="network: expected inputs and relations tokens, got tokens, mask"):
        net(net.parameters, tokens=x, mask=x)
    with pytest.raises(TypeError, match="network: expected parameters linear_in"):
        net({}, tokens=x)
    with pytest.raises(ValueError, match="samples: expected a divisor of the rows, 6, got 4"):
        net(net.parameters, tokens=x, samples=4)
    with pytest.raises(ValueError, match=r"network: expected an array \[6, 35\], got \[6, 34\]"):
        net(net.parameters, tokens=x[:, :34])
    with pytest.raises(TypeError, match="network: expected arrays of float32, as the first one is, got float64"):
        net(net.parameters, tokens=x.astype(jnp.float32))
    with pytest.raises(TypeError, match="network: expected arrays of float32 or float64, got int32"):
        net(net.parameters, tokens=x.astype(jnp.int32))
    with pytest.raises(OSError):
        fj.load_network("no/such/file")


def test_networks_have_one_output(loaded, tmp_path):
    loaded(network((1, 3, 0)))
    path = tmp_path / "network.safetensors"
    rewritten(path, lambda graph: graph["outputs"].append({**graph["outputs"][0], "name": "more"}))
    with pytest.raises(flashcliff.UnsupportedError, match="expected one output, got 2"):
        fj.load_network(path)
