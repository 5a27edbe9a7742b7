"""The network of jets in files: it computes what the module does in evaluation, and says what has no file."""

import itertools

import pytest
import torch
from nn_common import NODES, RECEIVERS, SENDERS, difference, disturb, random, statistics
from test_files import contents

import flashcliff
from flashcliff import Algebra, nn
from flashcliff.graphs import Relation
from flashcliff.nn.models import _scalars
from flashcliff.nn.transformer import described

F64 = {"dtype": torch.float64}
ENDS = Relation(torch.as_tensor(RECEIVERS), NODES), Relation(torch.as_tensor(SENDERS), NODES)
GRAPHS = Relation(torch.tensor([0, 0, 1, 0, 1, 1]), 2)
NORM = "CGLs.1.theta_h.1"


def tagger(**options):
    """A network in evaluation, whose parameters and statistics are no start values."""
    sizes = {"scalars": 6, "channels": 2, "decoder": 7, "classes": 3, "layers": 2, **F64}
    net = disturb(nn.models.JetTagger(**{**sizes, **options})).eval()
    statistics(net)
    return net


def particles(net):
    # A scalar of 0 is a massless particle.
    scalars = random(NODES, net.embedding_h.in_features, seed=1)
    scalars[2, 0] = 0
    return [x.requires_grad_() for x in (random(NODES, 4), scalars)]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "network.safetensors"


def logits(net, momenta, scalars):
    """The result of a file."""
    relations = dict(zip(("receivers", "senders", "graphs"), (*ENDS, GRAPHS)))
    (found,) = net(momenta=momenta[:, None], scalars=scalars[None], **relations)
    return found


def alike(got, want, limit):
    least = 1e-3 * max(w.abs().max() for w in want)
    for g, w in zip(got, want, strict=True):
        assert (g.view(w.shape) - w).abs().max() <= limit * torch.maximum(w.abs().max(), least)


OPTIONS = [
    {},
    {"aggregation": "sum", "residual": True, "normalization_init": 0.0},
    {"layer_type": "gpmlp", "normalization_init": 0.5, "channels": 1},
    {"layer_type": "gpmlp", "gates": False},
    # More channels than a node joins.
    {"channels": 9, "layers": 1, "in_scalars": 1},
    {"layers": 0},
]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_files_are_the_module_in_evaluation(options, loaded):
    net = tagger(**options)
    own, given = loaded(net), particles(net)
    got, want = logits(own, *given), net(*given, ENDS, GRAPHS)
    assert difference(got, want) < 1e-12
    parameters = dict(net.named_parameters())
    if net.CGLs and not net.CGLs[0].gates:
        parameters = {n: p for n, p in parameters.items() if "psi_x" not in n and "chi_x" not in n}
    of_file = dict(own.named_parameters())
    wanted = torch.autograd.grad(want, [*given, *parameters.values()], random(2, 3), True, True)
    leaves = [*given, *(of_file[name] for name in parameters)]
    found = torch.autograd.grad(got, leaves, random(2, 3), True, True)
    alike(found, wanted, 1e-10)
    second = [
        torch.autograd.grad(sum((g**2).sum() for g in own[:2]), given) for own in (found, wanted)
    ]
    alike(*second, 1e-9)


def test_names_are_those_of_the_state_dict(loaded, path, tmp_path):
    net = tagger()
    own = loaded(net)
    assert own.inputs == {"momenta": ("rows", "1", "4"), "scalars": ("1", "rows", "2")}
    assert list(own.relations) == ["receivers", "senders", "graphs"]
    assert own.outputs == {"output": ("1", "graphs", "3")}
    state = {name: x for name, x in net.state_dict().items() if x.is_floating_point()}
    _, tensors = contents(path)
    assert tensors.keys() == state.keys()
    assert all(torch.equal(x.flatten(), state[name].flatten()) for name, x in tensors.items())
    flashcliff.save_network(own, tmp_path / "again.safetensors")
    assert (tmp_path / "again.safetensors").read_bytes() == path.read_bytes()


def test_float32(loaded):
    net = tagger().float()
    given = [x.detach().float() for x in particles(net)]
    assert difference(logits(loaded(net), *given), net(*given, ENDS, GRAPHS)) < 1e-5


PARTS = "weight", "bias", "running_mean", "running_var"


@pytest.mark.parametrize(
    "norm", [f"CGLs.{at}.{own}_h.1" for at in range(2) for own in ("phi", "theta")]
)
def test_parts_of_norms_that_are_swapped_are_noticed(norm, loaded):
    net, given = tagger(), particles(tagger())
    own, want = loaded(net), net(*given, ENDS, GRAPHS)
    state = {name: x.clone() for name, x in own.state_dict().items()}
    for first, second in itertools.combinations(PARTS, 2):
        names = f"{norm}.{first}", f"{norm}.{second}"
        swapped = {names[0]: state[names[1]].abs(), names[1]: state[names[0]].abs()}
        own.load_state_dict({**state, **swapped})
        assert difference(logits(own, *given), want) > 1e-4, names
    other = norm.replace("CGLs.0", "CGLs.2").replace("CGLs.1", "CGLs.0").replace("CGLs.2", "CGLs.1")
    for name in PARTS[2:]:
        own.load_state_dict({**state, f"{norm}.{name}": state[f"{other}.{name}"]})
        assert difference(logits(own, *given), want) > 1e-4, name
    own.load_state_dict(state)
    assert difference(logits(own, *given), want) < 1e-12


def test_networks_in_training_have_no_file(path):
    net = tagger().train()
    match = r"save_network of JetTagger: its batch norms are in training.*model.eval\(\) first"
    with pytest.raises(flashcliff.UnsupportedError, match=match):
        flashcliff.save_network(net, path)
    net.eval().get_submodule(NORM).train()
    with pytest.raises(flashcliff.UnsupportedError, match=match):
        flashcliff.save_network(net, path)
    with pytest.raises(flashcliff.UnsupportedError, match=match):
        flashcliff.export(net, path.with_suffix(".onnx"))
    assert not list(path.parent.iterdir())
    # Dropout is left out, as of other networks, and so is what training counts.
    net.eval()
    flashcliff.save_network(net, path)
    plain = path.read_bytes()
    net.graph_dec.train()
    net.get_submodule(NORM).num_batches_tracked.add_(3)
    flashcliff.save_network(net, path)
    assert path.read_bytes() == plain


def replaced(name, make):
    def change(net):
        parent, _, leaf = name.rpartition(".")
        net.get_submodule(parent)._modules[leaf] = make(net.get_submodule(name)).to(**F64).eval()

    return change


class Own(nn.models.CGLayer):
    pass


UNSUPPORTED = {
    "no statistics": (
        replaced(NORM, lambda x: torch.nn.BatchNorm1d(6, track_running_stats=False)),
        "no running statistics",
    ),
    "no factors": (
        replaced(NORM, lambda x: torch.nn.BatchNorm1d(6, affine=False)),
        "not normed by a BatchNorm1d of their channels",
    ),
    "another norm": (replaced(NORM, lambda x: torch.nn.LayerNorm(6)), "of the class LayerNorm"),
    "another map": (
        replaced("CGLs.0.phi_h.0", lambda x: torch.nn.Identity()),
        "not read by a Linear of 28 channels",
    ),
    "gates of a map": (
        replaced("CGLs.0.psi_x.2", lambda x: torch.nn.Linear(6, 10, bias=False)),
        "gates have no bias",
    ),
    "gates of nothing": (
        replaced("CGLs.0.psi_x.2", lambda x: torch.nn.Identity()),
        "gates are not of a Linear",
    ),
    "a layer": (
        replaced("CGLs.1", lambda x: Own((1, 3, 0), 2, 6, 3, 1, 2)),
        "CGLs.1 is of the class Own",
    ),
    "no layer": (
        replaced("CGLs.1", lambda x: torch.nn.Identity()),
        "a layer is of the class Identity",
    ),
    "other channels": (
        replaced("CGLs.1", lambda x: nn.models.CGLayer((1, 3, 0), 3, 6, 3, 1, 2)),
        "other channels than what it reads",
    ),
    "an embedding": (
        replaced("embedding_x", lambda x: nn.MVLinear((1, 3, 0), 1, 2)),
        "per_grade of the embedding",
    ),
    "an embedding of nothing": (
        replaced("embedding_x", lambda x: torch.nn.Identity()),
        "the embedding is no MVLinear",
    ),
    "an embedding of no scalars": (
        replaced("embedding_h", lambda x: torch.nn.Identity()),
        "the embedding of scalars is no Linear",
    ),
    **{
        f"no {name}": (
            replaced(name, lambda x: torch.nn.Identity()),
            r"a part is no Sequential of \d modules or more",
        )
        for name in ("graph_dec", *(f"CGLs.0.{own}" for own in ("phi_h", "phi_x", "psi_x")))
    },
    "a norm alone": (
        replaced("CGLs.0.theta_h", lambda x: torch.nn.Sequential(x[1])),
        "no Sequential of 2 modules or more",
    ),
    "a product with another norm": (
        replaced("CGLs.0.phi_x.0.normalization", lambda x: torch.nn.ReLU()),
        "a product normalises in a way of its own",
    ),
    "hooks": (
        lambda net: net.CGLs[0].phi_x.register_forward_hook(lambda *_: None),
        "CGLs.0.phi_x has hooks",
    ),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_what_has_no_file_says_why(name, path):
    change, match = UNSUPPORTED[name]
    net = tagger()
    change(net)
    with pytest.raises(flashcliff.UnsupportedError, match=match):
        flashcliff.save_network(net, path)
    assert not path.exists()


def test_layers_have_two_results_and_no_file(path):
    with pytest.raises(
        flashcliff.UnsupportedError, match="save_network of CGLayer: expected a network"
    ):
        flashcliff.save_network(nn.models.CGLayer((1, 3, 0), 2, 3), path)


def test_the_least_variance_is_that_of_the_norm(loaded):
    net = tagger()
    net.get_submodule(NORM).eps = 0.3
    given = particles(net)
    assert difference(logits(loaded(net), *given), net(*given, ENDS, GRAPHS)) < 1e-12


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_logarithms(dtype):
    log, most = _scalars._signed_log(Algebra(1, 3, 0)), 300 if dtype == torch.float64 else 37
    sizes = torch.logspace(-30, most, 400, dtype=torch.float64).to(dtype)
    x = torch.cat([-sizes, sizes.new_zeros(1), sizes])[None, :, None].requires_grad_()
    got, want = log(x), x.sign() * x.abs().log1p()
    eps = torch.finfo(dtype).eps
    # Next to 0 the error is that of 1 + |s|.
    assert ((got - want).abs() <= 8 * eps * want.abs().clamp(min=1)).all()
    got, want = (torch.autograd.grad(own.sum(), x)[0] for own in (got, want))
    kept = x.abs() < 1e30
    assert ((got - want).abs()[kept] <= 1e3 * eps * want.abs()[kept]).all()


@pytest.mark.parametrize("channels", [1, 3, 8, 9, 70])
def test_columns_by_grade(channels, path):
    """Columns have the order of invariants, for channels that nodes split and join at once, and for more."""
    network = described.MessageVariant("x", 1, 5 * channels).draft(None)
    layer = torch.nn.Linear(5 * channels, 2, bias=False, **F64)
    weight, _, _ = _scalars.weights(network, layer, 5 * channels)
    own = _scalars.columns_by_grade(network, weight, channels, 5)
    out = network.linear(Algebra(1, 3, 0), network.here, (own, None), 2)
    network.network.function(out.value).save(str(path), "f64", [layer.weight.data_ptr()])
    x = random(1, 4, 5 * channels)
    got = flashcliff.load_network(path)(x=x)
    assert difference(got, layer(x.unflatten(-1, (5, channels)).mT.flatten(-2))) < 1e-13
