"""Networks in files: what is in them, and that the C library computes what the modules do, with their gradients."""

import json
import struct

import c_library
import pytest
import torch
from c_library import needs_library
from network_cases import CASES, GATR, LGATR, compare, gradients, network
from nn_common import RECEIVERS, SENDERS, difference, random

import flashcliff
from flashcliff import nn
from flashcliff.compat import gatr
from flashcliff.graphs import Relation
from flashcliff.nn import transformer as gt

LIMITS = {torch.float64: 1e-12, torch.float32: 2e-5}
KEY = "flashcliff_network"


def contents(path):
    """The network and the tensors of a file, read by the rules of safetensors."""
    data = path.read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    header = json.loads(data[8 : 8 + size])
    graph = json.loads(header.pop("__metadata__")[KEY])
    types = {"F32": torch.float32, "F64": torch.float64}
    tensors = {}
    for name, own in header.items():
        start, end = (8 + size + at for at in own["data_offsets"])
        found = torch.frombuffer(bytearray(data[start:end]), dtype=types[own["dtype"]])
        tensors[name] = found.view(own["shape"])
    return graph, tensors


@pytest.fixture
def saved(tmp_path):
    """Saves a module, and gives the path."""

    def save(module, **options):
        path = tmp_path / "network.safetensors"
        flashcliff.save_network(module, path, **options)
        return path

    return save


def run_in_c(case, path, seed):
    """The output of a file in C, and the gradients of the leaves of a case and of parameters."""
    given = case.given(**case.leaves)
    given.pop("samples", None)
    names = "cu_seqlens", "cu_seqlens_key"
    sequences = [given.pop(name).tolist() if name in given else () for name in names]
    loaded = flashcliff.load_network(path)
    relations = [given.pop(name) for name in loaded.relations]
    wanted = {name: x for name, x in given.items() if x.requires_grad}
    parameters = {n for n, p in case.module.named_parameters() if p.numel() and p.requires_grad}
    # Of what the result does not depend on there is no gradient.
    read = gradients(loaded(**case.given(**case.leaves)), {}, loaded).keys() & parameters
    plain = {name: x.detach() for name, x in given.items()}
    more = {"sequences": sequences, "relations": relations}
    out, grads = c_library.Network(path).run(case.batch, plain, seed, [*wanted, *sorted(read)], **more)
    of_inputs = [grads.pop(name) for name in wanted]
    leaves = torch.autograd.grad(list(wanted.values()), list(case.leaves.values()), of_inputs)
    alone, _ = c_library.Network(path).run(case.batch, plain, **more)
    return out, alone, {**grads, **dict(zip(case.leaves, leaves))}


@needs_library
@pytest.mark.parametrize(
    ("name", "dtype"),
    [*((name, torch.float64) for name in CASES), *((name, torch.float32) for name in ("GATr", "L-GATr"))],
)
def test_networks_run_in_c(name, dtype, saved):
    case = CASES[name]().to(dtype)
    out, limit = case.out(**case.leaves), LIMITS[dtype]
    path = saved(case.module, mask=case.mask)
    got, alone, grads = run_in_c(case, path, random(*out.shape, 1, seed=9)[..., 0].to(dtype))
    assert difference(got, out) < limit and difference(alone, out) < limit
    compare(grads, gradients(out, case.leaves, case.module), 10 * limit)


@needs_library
def test_relations_with_wrong_targets_are_refused(saved):
    path = saved(nn.EGCL((2, 0, 0), 3, dtype=torch.float64))
    ends = Relation(RECEIVERS, 6), Relation(SENDERS, 6)
    ends[1].targets[3] = 6
    with pytest.raises(RuntimeError, match="got 6 for row 3"):
        c_library.Network(path).run((6, 1, 0, 8, 0), {"nodes": random(4, 6, 3)}, relations=ends)


@pytest.mark.parametrize("dtype", LIMITS, ids=str)
def test_parameters_are_those_of_the_state_dict(dtype, saved):
    net = network(LGATR, affine=True).to(dtype)
    graph, tensors = contents(saved(net))
    state = net.state_dict()
    assert tensors.keys() == state.keys()
    assert [own["name"] for own in graph["parameters"]] == [
        name for name, _ in sorted(state.items(), key=lambda own: order(graph, own[0]))
    ]
    for name, found in tensors.items():
        assert found.dtype == dtype
        assert torch.equal(found, state[name])
    assert [own["name"] for own in graph["outputs"]] == ["output"]


def order(graph, name):
    return [own["name"] for own in graph["parameters"]].index(name)


def test_parameters_that_modules_share_are_stored_once(saved):
    net = network(LGATR, affine=True)
    net.blocks[0].norm2 = net.blocks[0].norm1
    _, tensors = contents(saved(net))
    assert net.state_dict().keys() - tensors.keys() == {
        "blocks.0.norm2.weight_mv",
        "blocks.0.norm2.weight_s",
    }


def test_training_and_what_is_computed_again_do_not_matter(saved):
    net = network(LGATR, dropout=0.3).eval()
    plain = saved(net).read_bytes()
    other = network(LGATR, dropout=0.3, checkpoint_blocks=True).train()
    other.load_state_dict(net.state_dict())
    assert saved(other).read_bytes() == plain
    for p in net.parameters():
        p.data = p.data.mT.contiguous().mT if p.dim() > 1 else p.data
    assert saved(net).read_bytes() == plain


class Wrapped(torch.nn.Module):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def forward(self, x):
        return self.net(x)[0].sum()


class Doubled(gt.GATransformer):
    def forward(self, *given, **more):
        return super().forward(*given, **more)[0] * 2, None


def hooked(net):
    net.register_forward_hook(lambda *_: None)
    return net


def hooked_within(net):
    net.blocks[1].mlp.register_forward_hook(lambda *_: None)
    return net


def parametrised(net):
    torch.nn.utils.parametrizations.weight_norm(net.linear_in, "weight")
    return net


def replaced(net):
    net.forward = lambda x: x
    return net


UNSUPPORTED = {
    "a class of one's own": (Wrapped, "save the module within"),
    "a class with a forward of its own": (
        lambda net: Doubled(LGATR, 1, 1, 4, blocks=1),
        "Doubled, which has a forward of its own",
    ),
    "hooks": (hooked, "it has hooks"),
    "hooks within": (hooked_within, "blocks.1.mlp has hooks"),
    "a parametrization": (parametrised, "linear_in is of the class"),
    "a compiled module": (torch.compile, "it is compiled; save the module that torch.compile was given"),
    "a layer of another package": (lambda net: torch.nn.Linear(2, 2), "save what flashcliff.accelerate makes of it"),
    "a forward": (replaced, "it has forward as an attribute of its own"),
    "attention in 16 bits": (
        lambda net: network(LGATR, attention={"heads": 2, "dtype": torch.bfloat16}),
        "features of torch.bfloat16",
    ),
    "an option": (
        lambda net: gt.GATransformer(GATR, 1, 1, 4, blocks=1, attention={"heads": 2, "eps": 0.1}),
        "regularisation of distances",
    ),
    "no channels of its own": (lambda net: gt.EquiLayerNorm(LGATR), "knows its channels"),
    "axes of items": (
        lambda net: gatr.AxialGATr(1, 1, 4, 1, 1, 4, {"num_heads": 2}, {}, num_blocks=1),
        "AxialGATr: expected a network",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_has_no_description_is_refused(name, tmp_path):
    make, words = UNSUPPORTED[name]
    with pytest.raises(flashcliff.UnsupportedError, match=words):
        flashcliff.save_network(make(network(LGATR)), tmp_path / "network")
    assert not list(tmp_path.iterdir())


def test_wrong_arguments(tmp_path):
    net, path = network(LGATR), tmp_path / "network"
    with pytest.raises(TypeError, match=r"module: expected a torch.nn.Module"):
        flashcliff.save_network("net", path)
    with pytest.raises(TypeError, match=r"all of torch.float64, got torch.bfloat16"):
        flashcliff.save_network(network(LGATR).bfloat16(), path)
    net.linear_in.float()
    with pytest.raises(TypeError, match=r"got torch.float32, torch.float64"):
        flashcliff.save_network(net, path)
    with pytest.raises(ValueError, match="device meta"):
        flashcliff.save_network(network(LGATR).to("meta"), path)
    with pytest.raises(ValueError, match="mask=False, because there is no attention"):
        flashcliff.save_network(gt.EquiLinear(LGATR, 1, 1), path, mask=True)
    with pytest.raises(FileNotFoundError, match="no/such"):
        flashcliff.save_network(network(LGATR), tmp_path / "no/such/network")
    assert not list(tmp_path.iterdir())
    path.write_text("something else")
    flashcliff.save_network(network(LGATR), path)
    assert contents(path)[1]
