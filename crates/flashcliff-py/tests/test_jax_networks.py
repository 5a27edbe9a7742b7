"""Networks of files within programs of JAX: the bits of the modules of PyTorch, derivatives, relations."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from collections import Counter

import numpy as np
import pytest
import torch
from network_cases import LGATR, NETWORKS, compare, gradients, network
from nn_common import difference, random
from test_load_network import rewritten

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402
from jax.test_util import check_grads  # noqa: E402

import flashcliff  # noqa: E402
from flashcliff import jax as fj  # noqa: E402
from flashcliff._jax import primitives, sequences  # noqa: E402

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


BOUNDS = [0, 2, 2, 5, 12]
# One function in PyTorch, too, with the same sums in the same order.
BITS = "GATr", "L-GATr", "ragged", "ragged condition", "slim of 2.0, 3 vectors"


def called(case, net):
    """The inputs of a call as arrays, and the call as a function of parameters and inputs."""
    given, more = case.given(**case.leaves), {}
    for name in given.keys() & {"cu_seqlens", "cu_seqlens_key", "samples"}:
        own = given.pop(name)
        more[name] = array(own) if isinstance(own, torch.Tensor) else own
    for name in net.relations:
        more[name] = array(given.pop(name).targets)
    if "graphs" in net.relations:
        # Graphs are the name of a relation and of the number of its targets.
        more["graph_count"] = 2
    return given, lambda parameters, inputs: net(parameters, **inputs, **more)


@pytest.mark.parametrize(
    ("name", "dtype"), [*((name, torch.float64) for name in NETWORKS), *((name, torch.float32) for name in BITS)]
)
def test_networks_have_the_numbers_of_pytorch(name, dtype, loaded):
    case = NETWORKS[name]().to(dtype)
    net = loaded(case.module, mask=case.mask)
    given, call = called(case, net)
    out = case.out(**case.leaves)
    inputs = {key: array(x) for key, x in given.items()}
    result, pullback = jax.vjp(jax.jit(call), net.parameters, inputs)
    if case.exact:
        assert same(result, out)
    assert difference(torch.tensor(np.asarray(result)), out) < 1e-12
    seed = random(*out.shape, 1, seed=9)[..., 0].to(dtype)
    found = [{key: torch.tensor(np.asarray(x)) for key, x in own.items()} for own in pullback(array(seed))]
    leaves = list(case.leaves.values())
    followed = [key for key, x in given.items() if x.requires_grad]
    of_inputs = torch.autograd.grad([given[key] for key in followed], leaves, [found[1][key] for key in followed])
    names = {key for key, p in case.module.named_parameters() if p.numel() and p.requires_grad}
    got = {key: x for key, x in found[0].items() if key in names} | dict(zip(case.leaves, of_inputs))
    compare(got, gradients(out, case.leaves, case.module), 0.0 if name in BITS else 1e-10)


def test_ends_and_wrong_boundaries(loaded):
    case = NETWORKS["ragged condition"]()
    net = loaded(case.module)
    assert net.inputs["tokens"] == ("rows", "35")
    assert net.parameters.keys() == dict(case.module.named_parameters()).keys()
    given = case.given(**case.leaves)
    inputs = {name: array(given[name]) for name in ("tokens", "context")}
    own, keys = (array(given[name]) for name in ("cu_seqlens", "cu_seqlens_key"))
    with pytest.raises(ValueError, match="cu_seqlens: expected ascending boundaries from 0 to 6, got"):
        net(net.parameters, **inputs, cu_seqlens=own)
    with pytest.raises(ValueError, match="cu_seqlens_key: expected 3 boundaries, as cu_seqlens has, got 2"):
        net(net.parameters, **inputs, cu_seqlens=own, cu_seqlens_key=keys[:2])


def test_a_ragged_context_without_rows(loaded, tmp_path):
    case = NETWORKS["ragged condition"]()
    net = loaded(case.module)
    given = case.given(**case.leaves)
    tokens, own, keys = (array(given[name]) for name in ("tokens", "cu_seqlens", "cu_seqlens_key"))
    width = given["context"].shape[1]

    def call(context, keys):
        more = {"reference": array(given["reference"])} if "reference" in net.inputs else {}
        return net(net.parameters, tokens=tokens, context=context, cu_seqlens=own, cu_seqlens_key=keys, **more)

    call(array(given["context"]), keys)
    found = call(jnp.zeros((0, width)), jnp.zeros_like(own))
    wanted = flashcliff.load_network(tmp_path / "network.safetensors")(
        **{name: x for name, x in given.items() if name not in ("context", "cu_seqlens_key")},
        context=torch.zeros(0, width, dtype=torch.float64),
        cu_seqlens_key=torch.zeros(len(own), dtype=torch.int64),
    )
    assert same(found, wanted)
    with pytest.raises(ValueError, match="cu_seqlens_key: expected ascending boundaries from 0 to 0, got"):
        call(jnp.zeros((0, width)), keys)


@pytest.mark.share(2)
@pytest.mark.parametrize("dtype", [jnp.int32, jnp.int64])
def test_boundaries_are_traced(dtype, loaded):
    """One program serves all boundaries of as many sequences, and its sequences do not see each other."""
    net, x = loaded(network(LGATR)), array(random(12, 35))
    traces = []

    @jax.jit
    def gradients(parameters, x, bounds):
        traces.append(bounds)
        call = lambda p, x: net(p, tokens=x, cu_seqlens=bounds)  # noqa: E731
        return call(parameters, x), jax.grad(lambda p, x: jnp.sin(call(p, x)).sum(), (0, 1))(parameters, x)

    for bounds in (BOUNDS, [0, 0, 12, 12, 12], [0, 3, 6, 9, 12]):
        found = gradients(net.parameters, x, jnp.array(bounds, dtype))

        def alone(p, x, bounds=bounds):
            return jnp.concatenate([net(p, tokens=x[a:b]) for a, b in zip(bounds, bounds[1:]) if b > a])

        by = jax.grad(lambda p, x: jnp.sin(alone(p, x)).sum(), (0, 1))(net.parameters, x)
        for got, wanted in zip(jax.tree.leaves(found), jax.tree.leaves((alone(net.parameters, x), by)), strict=True):
            np.testing.assert_allclose(got, wanted, rtol=1e-9, atol=1e-10)
    assert len(traces) == 1


def test_ragged_batches_have_second_derivatives_and_loops(loaded):
    net, x = loaded(network(LGATR, blocks=1)), array(random(2, 5, 35))
    bounds = jnp.array([[0, 2, 5], [0, 4, 5]])

    def energy(x, bounds):
        return jnp.sin(net(net.parameters, tokens=x, cu_seqlens=bounds)).sum()

    check_grads(lambda x: energy(x, bounds[0]), (x[0],), order=2, modes=["rev"], eps=1e-5, atol=1e-4, rtol=1e-4)
    found = jax.jit(jax.vmap(jax.grad(energy)))(x, bounds)
    for at in range(2):
        assert np.array_equal(found[at], jax.grad(energy)(x[at], bounds[at]))


def test_wrong_boundaries(loaded):
    net, x = loaded(network(LGATR, blocks=1)), array(random(6, 35))

    def call(bounds, **more):
        return net(net.parameters, tokens=x, cu_seqlens=bounds, **more)

    of = lambda *bounds: jnp.array(bounds)  # noqa: E731
    for bounds in (of(0, 2, 5), of(1, 6), of(0, 4, 3, 6), of(0, 7), of(-1, 6)):
        with pytest.raises(ValueError, match="cu_seqlens: expected ascending boundaries from 0 to 6, got"):
            call(bounds)
        # The program sees them when it runs.
        with pytest.raises(jax.errors.JaxRuntimeError, match="sequences: expected offsets of . that ascend from 0 to 6, of a plan of one sample, got"):
            jax.jit(call)(bounds).block_until_ready()
    with pytest.raises(ValueError, match=r"cu_seqlens: expected boundaries \[sequences \+ 1\], got the shape \[1, 2\]"):
        call(of(0, 6)[None])
    with pytest.raises(TypeError, match="cu_seqlens: expected an array of int32 or int64, got float64"):
        call(of(0.0, 6.0))
    with pytest.raises(TypeError, match="cu_seqlens: expected an array of int32 or int64, got list"):
        call([0, 6])
    with pytest.raises(ValueError, match="cu_seqlens: expected one sample of all rows, of a network that is not on graphs, got 2"):
        call(of(0, 6), samples=2)
    with pytest.raises(ValueError, match="longest: expected at least 4, the length of a sequence of cu_seqlens, got 3"):
        call(of(0, 4, 6), longest=3)
    with pytest.raises(ValueError, match="longest: expected at least 6 in 2 sequences of cu_seqlens, got 2 in each"):
        jax.jit(lambda bounds: call(bounds, longest=2))(of(0, 2, 6))
    with pytest.raises(ValueError, match="cu_seqlens: expected boundaries, since there is cu_seqlens_key, got None"):
        net(net.parameters, tokens=x, cu_seqlens_key=of(0, 6))
    with pytest.raises(ValueError, match="cu_seqlens_key: expected None, because the network has no context"):
        call(of(0, 6), cu_seqlens_key=of(0, 6))


def test_boundaries_that_no_host_reads_are_within_the_rows():
    """What GPUs get: kernels read no other rows, and wrong boundaries show."""
    right, x = jnp.array([0, 2, 2, 6]), jnp.ones((6, 2))
    assert sequences.bounded(right, 6).tolist() == right.tolist()
    assert sequences.poisoned(x, sequences.fits(right, 6, 4)).tolist() == x.tolist()
    for wrong in ([0, 2, 2, 5], [1, 2, 2, 6], [0, 4, 3, 6], [-3, 2, 2, 6], [0, 9, 2, 6], [0, 1, 1, 6]):
        bounds = jnp.array(wrong)
        made = sequences.bounded(bounds, 6)
        assert made[0] == 0 and made[-1] == 6 and (jnp.diff(made) >= 0).all()
        assert jnp.isnan(sequences.poisoned(x, sequences.fits(bounds, 6, 4))).all()


def calls_of(function, *arrays):
    """The foreign calls of a compiled program, by their names."""
    compiled = jax.jit(function).lower(*arrays).compile().as_text()
    return Counter(re.findall(r'custom_call_target="flashcliff_(\w+)"', compiled))


@pytest.mark.parametrize("bounds", [None, BOUNDS], ids=["equal", "ragged"])
def test_a_gradient_runs_the_forward_pass_once(bounds, loaded):
    net, x = loaded(network(LGATR)), array(random(12, 35))
    more = {"samples": 3} if bounds is None else {"cu_seqlens": jnp.array(bounds)}

    def call(parameters, x):
        return net(parameters, tokens=x, **more)

    def loss(parameters, x):
        return jnp.sin(call(parameters, x)).sum()

    both = {"network": 1, "network_backward": 1}
    for by in (0, 1, (0, 1)):
        assert calls_of(jax.grad(loss, by), net.parameters, x) == both
        assert calls_of(jax.value_and_grad(jax.checkpoint(loss, policy=jax.checkpoint_policies.everything_saveable), by), net.parameters, x) == both
    assert calls_of(loss, net.parameters, x) == {"network": 1}
    # The plain call keeps nothing: its result is all that it writes.
    assert "ui8" not in jax.jit(call).lower(net.parameters, x).as_text()
    kept = jax.jit(jax.grad(loss)).lower(net.parameters, x).as_text()
    assert re.search(r"@flashcliff_network\(.*-> \(tensor<12x50xf64>, tensor<\d+xui8>\)", kept)
    # Without what is kept a recomputing checkpoint has a second forward pass.
    again = jax.grad(jax.checkpoint(loss, prevent_cse=True))
    assert calls_of(again, net.parameters, x)["network_backward"] == 1


def test_only_gradients_that_are_asked_for_are_computed(loaded):
    """By parts, within each other, and through conditions in batches, whose branches keep something else."""
    net, x = loaded(network(LGATR, blocks=1)), array(random(3, 4, 35))

    def loss(parameters, x):
        return jnp.sin(net(parameters, tokens=x)).sum()

    whole = jax.jit(jax.grad(loss, (0, 1)))(net.parameters, x[0])
    for by in (0, 1):
        for got, wanted in zip(jax.tree.leaves(jax.grad(loss, by)(net.parameters, x[0])), jax.tree.leaves(whole[by]), strict=True):
            assert np.array_equal(got, wanted)

    def either(x, choice):
        small = lambda x: loss(net.parameters, x)  # noqa: E731
        return jax.lax.cond(choice, small, lambda x: 2 * jax.checkpoint(small)(x[::-1]), x)

    choices = jnp.array([True, False, True])
    found = jax.jit(jax.vmap(jax.grad(either)))(x, choices)
    for at in range(3):
        np.testing.assert_allclose(found[at], jax.grad(either)(x[at], choices[at]), rtol=1e-12, atol=1e-12)

    def summed(parameters, x):
        step = lambda total, one: (total + loss(parameters, one), None)  # noqa: E731
        return jax.lax.scan(step, 0.0, x)[0]

    found = jax.jit(jax.grad(summed))(net.parameters, x)
    parts = [jax.grad(loss)(net.parameters, one) for one in x]
    for got, *each in zip(*map(jax.tree.leaves, (found, *parts)), strict=True):
        np.testing.assert_allclose(got, sum(each), rtol=1e-12, atol=1e-12)


def test_energies_and_forces_have_the_gradients_of_pytorch(loaded, tmp_path):
    """The first backward pass reads what is kept for inputs, and the gradient of both losses what is kept for parameters."""
    net = loaded(network(LGATR, blocks=1))
    module = flashcliff.load_network(tmp_path / "network.safetensors")
    rows = random(4, 35).requires_grad_()
    out = module(tokens=rows)
    (force,) = torch.autograd.grad(out.sin().sum(), rows, create_graph=True)
    total = out.square().sum() + force.square().sum()
    named = dict(module.named_parameters())
    wanted = torch.autograd.grad(total, [rows, *named.values()])

    def loss(parameters, x):
        out = net(parameters, tokens=x)
        force = jax.grad(lambda x: jnp.sin(net(parameters, tokens=x)).sum())(x)
        return (out**2).sum() + (force**2).sum()

    of_parameters, by_rows = jax.jit(jax.grad(loss, (0, 1)))(net.parameters, array(rows))
    for got, own in zip([by_rows, *(of_parameters[name] for name in named)], wanted, strict=True):
        np.testing.assert_allclose(got, own.numpy(), rtol=1e-9, atol=1e-9)


def test_what_is_kept_is_as_long_as_the_plan_says(loaded):
    """A backward pass refuses the bytes of another plan."""
    net, x = loaded(network(LGATR, blocks=1)), array(random(4, 35))
    jaxpr = jax.make_jaxpr(jax.grad(lambda x: net(net.parameters, tokens=x).sum()))(x)
    (of,) = {e.params["of"] for e in jaxpr.eqns if e.primitive.name == "flashcliff_backward"}
    arrays = [x, *net.parameters.values(), jnp.zeros((4, 50)), jnp.zeros(64, jnp.uint8), jnp.ones((4, 50))]
    with pytest.raises(jax.errors.JaxRuntimeError, match="what a forward pass keeps: expected .* bytes aligned to 8, got 64"):
        jax.block_until_ready(primitives.bound(primitives.backward_p, *arrays, of=of, wanted=of.wanted, tf32=False))


@pytest.mark.long
def test_second_derivatives_on_graphs_are_differences(loaded):
    case = NETWORKS["NBody"]()
    net = loaded(case.module)
    assert net.relations == {
        "receivers": ("edges", "rows"),
        "senders": ("edges", "rows"),
        "graphs": ("rows", "graphs"),
    }
    given, call = called(case, net)
    x = array(given["bodies"])
    check_grads(lambda x: call(net.parameters, {"bodies": x}), (x,), order=2, eps=1e-5, atol=1e-4, rtol=1e-4)


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


@pytest.mark.long
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


def test_third_derivatives_are_differences(loaded):
    net = loaded(network(LGATR, blocks=1))
    x, along = array(random(2, 35)), array(random(2, 35) * 0.3)

    def energy(x):
        return jnp.sin(net(net.parameters, tokens=x)).sum()

    def slope(function):
        return lambda x: jnp.vdot(jax.grad(function)(x), along)

    second = slope(slope(energy))
    step = 1e-4
    difference = (second(x + step * along) - second(x - step * along)) / (2 * step)
    np.testing.assert_allclose(slope(second)(x), difference, rtol=1e-5)

    def moved(function):
        return lambda x: jax.jvp(function, (x,), (along,))[1]

    by_tangents = jnp.vdot(moved(moved(jax.grad(energy)))(x), along)
    np.testing.assert_allclose(by_tangents, difference, rtol=1e-5)
    # The fifth is one too many.
    with pytest.raises(flashcliff.UnsupportedError, match="no gradient"):
        jax.make_jaxpr(slope(slope(slope(second))))(x)


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
    names = "flashcliff_network", "flashcliff_network_backward"
    checks = [export.DisabledSafetyCheck.custom_call(name) for name in names]
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
    with pytest.raises(TypeError, match="tokens: expected an array, got NoneType"):
        net(net.parameters, tokens=None)
    with pytest.raises(TypeError, match="network: expected parameters as a mapping, got NoneType"):
        net(None, tokens=x)
    with pytest.raises(OSError):
        fj.load_network("no/such/file")


WRONG = [
    ({"receivers": [0, 1]}, ValueError, r"receivers: expected 3 rows \(edges\), got 2|senders: expected 2 rows \(edges\), got 3"),
    ({"graphs": [0, 0, 0, 0]}, ValueError, r"graphs: expected 5 rows \(rows\), got 4"),
    ({"graph_count": 0}, ValueError, "graphs: expected at least one of graphs as the targets of 5 rows, got none"),
    ({"graph_count": -1}, ValueError, "graph_count: expected at least 0, got -1"),
    ({"senders": 1}, TypeError, r"senders: expected a relation as a list of integers, got int64 \[\]"),
    ({"senders": [0.0, 1.0, 2.0]}, TypeError, r"senders: expected a relation as a list of integers, got float64 \[3\]"),
    ({"samples": 5}, ValueError, "samples: expected 1, because the network is on graphs, got 5"),
]


@pytest.mark.parametrize(("changed", "error", "says"), WRONG)
@pytest.mark.parametrize("traced", [False, True])
def test_wrong_relations(changed, error, says, traced, loaded):
    """They are errors when a function is called or traced, and not only when its program runs."""
    net = loaded(NETWORKS["NBody"]().module)
    given = {"receivers": [0, 1, 2], "senders": [1, 2, 3], "graphs": [0] * 5, **changed}
    more = {name: given.pop(name) for name in given.keys() - net.relations.keys()}
    lists = {name: jnp.asarray(own) for name, own in given.items()}

    def call(bodies, lists):
        return net(net.parameters, bodies=bodies, **lists, **more)

    with pytest.raises(error, match=says):
        (jax.jit(call) if traced else call)(jnp.ones((5, 1, 7)), lists)


def test_networks_have_one_output(loaded, tmp_path):
    loaded(network((1, 3, 0)))
    path = tmp_path / "network.safetensors"
    rewritten(path, lambda graph: graph["outputs"].append({**graph["outputs"][0], "name": "more"}))
    with pytest.raises(flashcliff.UnsupportedError, match="expected one output, got 2"):
        fj.load_network(path)
