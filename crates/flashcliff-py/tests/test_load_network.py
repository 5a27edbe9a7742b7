"""Networks of files as modules: they compute what the modules did that were saved, with the same bits, and say what is wrong."""

import copy
import io
import json
import pickle
import struct

import pytest
import torch
from network_cases import (
    CASES,
    GATR,
    NETWORKS,
    bodies,
    compare,
    frames,
    gradients,
    layer,
    leaf,
    messages,
    network,
    transformer,
)
from nn_common import SENDERS, difference, random

import flashcliff
from flashcliff import nn
from flashcliff.graphs import Relation

all_cases = pytest.mark.parametrize("make", CASES.values(), ids=CASES)
networks = pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "network.safetensors"


@all_cases
def test_results_and_gradients_are_those_of_the_module(make, loaded):
    case = make()
    net = loaded(case.module, mask=case.mask)
    given = case.given(**case.leaves)
    if "senders" in given:
        # A relation may be the numbers of its rows.
        given["senders"] = given["senders"].targets.int()
    out, expected = net(**given), case.out(**case.leaves)
    limit = 0.0 if case.exact else 1e-13
    assert difference(out, expected) <= limit
    compare(gradients(out, case.leaves, net), gradients(expected, case.leaves, case.module), limit)
    with torch.no_grad():
        assert torch.equal(net(**case.given(**case.leaves)), out)


@networks
def test_gradients_have_gradients(make, loaded):
    case = make()
    for name in {"frames", "mask"} & case.leaves.keys():
        case.leaves[name] = case.leaves[name].detach()
    net = loaded(case.module, mask=case.mask)
    found = []
    leaves = {name: x for name, x in case.leaves.items() if x.requires_grad}
    for module, out in ((net, net(**case.given(**case.leaves))), (case.module, case.out(**case.leaves))):
        first = gradients(out, leaves, module, create_graph=True)
        total = sum((first[name] ** 2).sum() for name in leaves)
        found.append(gradients(total, leaves, module))
    compare(*found, 1e-11)


def test_gradients_of_frames_have_none(loaded):
    case = frames()
    out = loaded(case.module)(**case.given(**case.leaves))
    (first,) = torch.autograd.grad(out.sum(), case.leaves["frames"], create_graph=True)
    with pytest.raises(flashcliff.UnsupportedError, match="gradients of masks and frames have none"):
        first.sum().backward()


@networks
def test_a_loaded_network_is_saved_as_it_was(make, loaded, path, tmp_path):
    case = make()
    net = loaded(case.module, mask=case.mask)
    flashcliff.save_network(net, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_parameters_are_those_of_the_state_dict(loaded):
    case, other = transformer(GATR), network((3, 0, 1))
    net = loaded(case.module)
    state = case.module.state_dict()
    assert net.state_dict().keys() == state.keys()
    assert all(torch.equal(own, state[name]) for name, own in net.state_dict().items())
    assert {p.dtype for p in net.parameters()} == {torch.float64}
    with torch.no_grad():
        for p in other.parameters():
            p.mul_(1.5)
    net.load_state_dict(other.state_dict())
    case.module.load_state_dict(net.state_dict())
    assert torch.equal(net(**case.given(**case.leaves)), case.out(**case.leaves))


def test_columns_that_a_loss_leaves_out_are_used(loaded):
    """The result is one tensor, so its parameters have gradients, where the scalars of a module would be an unused tensor."""
    case = transformer(GATR)
    net = loaded(case.module)
    net(**case.given(**case.leaves))[:, :-2].sum().backward()
    found = {name: own.grad for name, own in net.named_parameters()}
    assert not found["linear_out.s2s.weight"].any() and found["linear_out.weight"].any()


def test_training_goes_the_same_way(loaded):
    case = transformer(GATR)
    net = loaded(case.module)
    steps = [torch.optim.AdamW(module.parameters(), 1e-2) for module in (net, case.module)]
    for _ in range(3):
        for step, call in zip(steps, (lambda **own: net(**case.given(**own)), case.out)):
            step.zero_grad()
            call(**case.leaves).square().mean().backward()
            step.step()
    state = case.module.state_dict()
    assert all(torch.equal(own, state[name]) for name, own in net.state_dict().items())


def test_types_are_those_of_the_call(loaded):
    case = transformer(GATR)
    net = loaded(case.module, "cpu", torch.float32)
    own = {name: x.float() for name, x in case.leaves.items()}
    out = net(**case.given(**own))
    assert out.dtype == torch.float32
    assert difference(out.double(), case.out(**case.leaves)) < 1e-4
    with torch.autocast("cpu", torch.bfloat16):
        # Positions lose too much in 16 bits.
        assert torch.equal(net(**case.given(**own)), out)
    half = net.bfloat16()
    small = half(**case.given(**{name: x.bfloat16() for name, x in own.items()}))
    assert small.dtype == torch.bfloat16
    assert difference(small.double(), case.out(**case.leaves)) < 0.2
    small.sum().backward()
    assert {p.grad.dtype for p in half.parameters()} == {torch.bfloat16}


def test_wrong_boundaries(loaded):
    with pytest.raises(ValueError, match="boundaries from 0 to 7"):
        loaded(network((1, 3, 0)))(tokens=random(7, 35), cu_seqlens=torch.tensor([0, 2, 3]))


def test_ragged_batches_without_context_rows(loaded):
    """No sequence has keys, and nothing is read of what calls before left in memory."""
    net, tokens = loaded(layer(GATR, "cross").module), random(8, 35)
    none, own = random(0, 69), torch.tensor([0, 0, 8])
    with torch.no_grad():
        net(tokens=tokens, context=random(9, 69), cu_seqlens=own, cu_seqlens_key=torch.tensor([0, 2, 9]))
        found = net(tokens=tokens, context=none, cu_seqlens=own, cu_seqlens_key=torch.zeros_like(own))
        assert torch.equal(found, net(tokens=tokens, context=none))
        with pytest.raises(ValueError, match="boundaries from 0 to 0"):
            net(tokens=tokens, context=none, cu_seqlens=own)


@pytest.mark.parametrize("context", [0, 4])
def test_ragged_batches_without_rows(context, loaded):
    net = loaded(layer(GATR, "cross").module)
    own, keys = torch.zeros(3, dtype=torch.int64), torch.tensor([0, 0, context])
    none, others = random(0, 35), random(context, 69)
    assert net(tokens=none, context=others, cu_seqlens=own, cu_seqlens_key=keys).shape == (0, 35)


def test_no_rows_and_rows_that_are_views(loaded):
    net = loaded(network((1, 3, 0)))
    assert net(tokens=torch.zeros(0, 35, dtype=torch.float64)).shape == (0, 50)
    rows = random(35, 6).T
    assert torch.equal(net(tokens=rows), net(tokens=rows.contiguous()))


def test_graphs_without_nodes(loaded):
    net = loaded(bodies(nn.models.NBody, 3, 2).module)
    none = torch.zeros(0, dtype=torch.int64)
    relations = dict.fromkeys(net.relations, none)
    nodes = torch.zeros(0, 1, 7, dtype=torch.float64, requires_grad=True)
    out = net(bodies=nodes, **relations, graph_count=0)
    assert out.shape == (3, 0, 1)
    out.sum().backward()
    assert all(not own.grad.any() for own in (nodes, *net.parameters()) if own.grad is not None)


def test_copies_pickles_and_other_parameters(loaded):
    case = transformer(GATR)
    net = loaded(case.module)
    given = case.given(**case.leaves)
    expected = net(**given)
    buffer = io.BytesIO()
    torch.save(net, buffer)
    buffer.seek(0)
    others = copy.deepcopy(net), pickle.loads(pickle.dumps(net)), torch.load(buffer, weights_only=False)
    for other in others:
        assert torch.equal(other(**given), expected)
    doubled = {name: 2 * p for name, p in net.named_parameters()}
    out = torch.func.functional_call(net, doubled, (), given)
    net.load_state_dict(doubled)
    assert torch.equal(out, net(**given))


def test_parametrizations_are_followed(loaded, tmp_path):
    case = transformer(GATR)
    net = loaded(case.module)
    inner = net._modules["linear_out"]
    name = next(iter(inner._parameters))
    plain = net(**case.given(**case.leaves))

    class Doubled(torch.nn.Module):
        def forward(self, x):
            return 2 * x

    torch.nn.utils.parametrize.register_parametrization(inner, name, Doubled())
    out = net(**case.given(**case.leaves))
    assert not torch.equal(out, plain)
    out.sum().backward()
    assert inner.parametrizations[name].original.grad is not None
    with pytest.raises(flashcliff.UnsupportedError, match="is of the class"):
        flashcliff.save_network(net, tmp_path / "no.safetensors")


def test_names_may_be_those_of_attributes(loaded, path, tmp_path):
    case = transformer(GATR)
    expected = loaded(case.module)(**case.given(**case.leaves))
    path.write_bytes(path.read_bytes().replace(b"blocks.", b"inputs."))
    net = flashcliff.load_network(path)
    assert any(name.startswith("inputs.0.") for name in net.state_dict())
    assert torch.equal(net(**case.given(**case.leaves)), expected)
    net.load_state_dict(net.state_dict())


def rewritten(path, change):
    """Changes the description of a file, as the rules of safetensors allow."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    graph = json.loads(header["__metadata__"]["flashcliff_network"])
    change(graph)
    header["__metadata__"]["flashcliff_network"] = json.dumps(graph)
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data[8 + size :])


def test_outputs_keep_their_name_and_are_one(loaded, path):
    loaded(network((1, 3, 0)))
    rewritten(path, lambda graph: graph["outputs"][0].update(name="energy"))
    net = flashcliff.load_network(path)
    assert net.outputs == {"energy": ("rows", "50")}
    flashcliff.save_network(net, path)
    assert flashcliff.load_network(path).outputs == net.outputs
    rewritten(path, lambda graph: graph["outputs"].append({**graph["outputs"][0], "name": "more"}))
    with pytest.raises(flashcliff.UnsupportedError, match="expected one output, got 2"):
        flashcliff.load_network(path)


def test_a_compiler_leaves_calls_as_they_are(loaded):
    case = transformer(GATR)
    net = loaded(case.module)
    compiled = torch.compile(lambda given: 2 * net(**given), backend="eager")
    given = case.given(**case.leaves)
    assert torch.equal(compiled(given), 2 * net(**given))


def test_it_shows_its_ends(loaded):
    text = repr(loaded(bodies(nn.models.NBody, 3, 2).module))
    assert "inputs: bodies [rows, 1, 7]" in text
    assert "relations: receivers [edges] to rows, senders [edges] to rows, graphs [rows] to graphs" in text
    assert "outputs: output [3, rows, 1]" in text
    assert "torch.float64 on cpu" in text


def tokens_of(count=10, width=35, dtype=torch.float64):
    return torch.zeros(count, width, dtype=dtype)


WRONG = {
    "missing": ({}, TypeError, "expected the inputs and relations tokens, got none"),
    "another": ({"tokens": tokens_of(), "x": 1}, TypeError, "tokens, got tokens, x"),
    "no tensor": ({"tokens": [1.0]}, TypeError, "tokens: expected a torch.Tensor, got list"),
    "width": ({"tokens": tokens_of(width=34)}, ValueError, r"tokens: expected \[rows, 35\] = \[10, 35\], got \[10, 34\]"),
    "axes": ({"tokens": tokens_of()[0]}, ValueError, r"got \[35\]"),
    "type": ({"tokens": tokens_of(dtype=torch.float32)}, TypeError, "parameters of torch.float32, as the inputs are, got torch.float64"),
    "integers": ({"tokens": tokens_of(dtype=torch.int64)}, TypeError, "floating-point numbers, got torch.int64"),
    "samples": ({"tokens": tokens_of(), "samples": 3}, ValueError, "a divisor of the rows, 10, got 3"),
    "no samples": ({"tokens": tokens_of(), "samples": 0}, ValueError, "a divisor of the rows, 10, got 0"),
    "a fraction": ({"tokens": tokens_of(), "samples": 2.0}, TypeError, "samples: expected an integer"),
    "sequences": (
        {"tokens": tokens_of(), "samples": 2, "cu_seqlens": torch.tensor([0, 5])},
        ValueError,
        "cu_seqlens: expected",
    ),
    "device": ({"tokens": tokens_of().to("meta")}, RuntimeError, "on meta, got one on cpu"),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_inputs_are_errors(name, loaded):
    given, error, message = WRONG[name]
    with pytest.raises(error, match=message):
        loaded(network((1, 3, 0)))(**given)


WRONG_RELATIONS = {
    "out of range": ({"senders": SENDERS + 2}, ValueError, "index"),
    "targets": ({"senders": Relation(SENDERS, 7)}, ValueError, r"senders: expected 8 rows \(edges\) and 6 targets \(rows\), got 8 and 7"),
    "rows": ({"senders": SENDERS[:-1]}, ValueError, "senders: expected 8 rows"),
    "floats": ({"senders": SENDERS.double()}, TypeError, "int32 or int64"),
    "a list": ({"senders": [0]}, TypeError, "senders: expected a Relation or a torch.Tensor"),
    "samples": ({"samples": 2}, ValueError, "samples: expected 1"),
    "edges": ({"edge_scalars": random(1, 7, 2)}, ValueError, "receivers: expected 7 rows"),
}


@pytest.mark.parametrize("name", WRONG_RELATIONS)
def test_wrong_relations_are_errors(name, loaded):
    changes, error, message = WRONG_RELATIONS[name]
    case = messages(2, 1)
    net = loaded(case.module)
    with pytest.raises(error, match=message):
        net(**{**case.given(**case.leaves), **changes})


def test_transforms_are_refused(loaded):
    net = loaded(network((1, 3, 0)))
    with pytest.raises(flashcliff.UnsupportedError, match="transform of torch.func"):
        torch.func.vmap(lambda x: net(tokens=x))(random(2, 3, 35))
    x = leaf(2, 35)
    out = net(tokens=x)
    with pytest.raises((flashcliff.UnsupportedError, RuntimeError), match="transform"):
        torch.autograd.grad(out, x, random(3, *out.shape), is_grads_batched=True)


DAMAGES = {
    "short": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "header": lambda data: data[:8] + b"x" + data[9:],
    "version": lambda data: data.replace(b'\\"version\\":1', b'\\"version\\":9', 1),
    "graph": lambda data: data.replace(b'\\"outputs\\"', b'\\"outputz\\"', 1),
    "no network": lambda data: data.replace(b"flashcliff_network", b"flashcliff_netwerk", 1),
    "parameter": lambda data: data.replace(b"linear_in", b"linear_on", 1),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_damaged_files_are_errors(name, path):
    flashcliff.save_network(network((1, 3, 0)), path)
    data = path.read_bytes()
    damaged = DAMAGES[name](data)
    assert damaged != data
    path.write_bytes(damaged)
    with pytest.raises(ValueError):
        flashcliff.load_network(path)


def test_wrong_arguments_are_errors(path, loaded, tmp_path):
    with pytest.raises(FileNotFoundError):
        flashcliff.load_network(tmp_path / "none.safetensors")
    net = loaded(network((1, 3, 0)))
    with pytest.raises(TypeError, match="floating-point numbers, got torch.int64"):
        flashcliff.load_network(path, dtype=torch.int64)
    with pytest.raises(ValueError, match="expected mask=False"):
        flashcliff.save_network(net, path, mask=True)
    first = net._modules["linear_in"]
    name = next(iter(first._parameters))
    first._parameters[name] = torch.nn.Parameter(torch.zeros(1, dtype=torch.float64))
    with pytest.raises(ValueError, match=rf"linear_in.{name}: expected \[.*\], got \[1\]"):
        flashcliff.save_network(net, path)


@pytest.mark.skipif(not torch.cuda.is_available() or not flashcliff.build_info()["cuda"], reason="needs CUDA")
@all_cases
def test_networks_run_on_cuda(make, loaded):
    case = make()
    expected = case.out(**case.leaves)
    net = loaded(case.module, "cuda")
    leaves = {name: x.detach().cuda().requires_grad_() for name, x in case.leaves.items()}
    given = {
        name: own.to("cuda") if isinstance(own, torch.Tensor | Relation) else own
        for name, own in case.given(**leaves).items()
    }
    out = net(**given)
    assert difference(out.cpu(), expected) < 1e-11
    seed = random(*out.shape, seed=9)
    found = torch.autograd.grad(out, list(leaves.values()), seed.cuda(), create_graph=True)
    own = torch.autograd.grad(expected, list(case.leaves.values()), seed)
    for got, right in zip(found, own, strict=True):
        assert difference(got.cpu(), right) < 1e-10
    # Gradients of frames have none.
    if "frames" not in leaves:
        sum(g.square().sum() for g in found).backward()
        assert all(p.grad is not None and p.grad.isfinite().all() for p in leaves.values())
