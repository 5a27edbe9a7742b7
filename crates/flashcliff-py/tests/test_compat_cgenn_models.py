"""Models written against CGENN's names run with ours: its algebra alone, and its layers too.

The models here are our own, small, and of the kinds that CGENN has: invariants of points, a
pseudoscalar, messages on a graph, and momenta of Cl(1,3) beside scalars.
"""

import copy
import io
import pickle
from types import SimpleNamespace

import cgenn_reference as theirs
import pytest
import torch
from nn_common import difference, disturb, random

from flashcliff import nn
from flashcliff.compat import cgenn

pytestmark = pytest.mark.usefixtures("double")

THEIRS = SimpleNamespace(
    algebra=theirs.Algebra,
    linear=theirs.Linear,
    gate=theirs.Gate,
    norm=theirs.LayerNorm,
    product=theirs.Product,
    connected=theirs.Product,
)
ALGEBRA = SimpleNamespace(**{**vars(THEIRS), "algebra": cgenn.CliffordAlgebra})
LAYERS = SimpleNamespace(
    algebra=cgenn.CliffordAlgebra,
    linear=cgenn.MVLinear,
    gate=cgenn.MVSiLU,
    norm=cgenn.MVLayerNorm,
    product=cgenn.SteerableGeometricProductLayer,
    connected=cgenn.FullyConnectedSteerableGeometricProductLayer,
)


class Invariants(torch.nn.Module):
    """Points of 5 dimensions to norms of channels."""

    def __init__(self, kit):
        super().__init__()
        self.algebra = kit.algebra((1.0,) * 5)
        self.net = torch.nn.Sequential(
            kit.linear(self.algebra, 3, 4, subspaces=False), kit.product(self.algebra, 4)
        )
        self.head = torch.nn.Linear(4, 1)

    def forward(self, points):
        x = self.net(self.algebra.embed_grade(points, 1))
        return self.head(x.norm(dim=-1))

    inputs = [(6, 3, 5)]


class Pseudoscalar(torch.nn.Module):
    def __init__(self, kit):
        super().__init__()
        self.algebra = kit.algebra((1.0, 1.0, 1.0))
        self.net = torch.nn.Sequential(
            kit.connected(self.algebra, 3, 4),
            kit.gate(self.algebra, 4),
            kit.connected(self.algebra, 4, 1, normalization_init=None),
        )

    def forward(self, points):
        return self.net(self.algebra.embed_grade(points, 1))[:, 0, -1]

    inputs = [(6, 3, 3)]


class Messages(torch.nn.Module):
    """One round on a complete graph: charges as scalars, places and speeds as vectors."""

    def __init__(self, kit):
        super().__init__()
        self.algebra = algebra = kit.algebra((1.0, 1.0, 1.0))
        self.embedding = kit.linear(algebra, 3, 4, subspaces=False)
        self.edge = torch.nn.Sequential(
            kit.linear(algebra, 5, 4),
            kit.gate(algebra, 4),
            kit.product(algebra, 4, include_first_order=True, normalization_init=0),
            kit.norm(algebra, 4),
        )
        self.out = kit.linear(algebra, 8, 1)

    def forward(self, charges, places, speeds):
        count = len(charges)
        i, j = torch.cartesian_prod(torch.arange(count), torch.arange(count)).T
        scalars = self.algebra.embed(charges, (0,))
        vectors = self.algebra.embed(torch.stack([places, speeds], dim=1), (1, 2, 3))
        h = self.embedding(torch.cat([scalars[:, None], vectors], dim=1))
        between = self.algebra.embed((charges[i] * charges[j])[..., None], (0,))
        messages = self.edge(torch.cat([h[i] - h[j], between], dim=1))
        mean = messages.flatten(1).view(count, count, -1).mean(1).view(count, *messages.shape[1:])
        moved = self.out(torch.cat([h, mean], dim=1))
        return places + self.algebra.get(moved, (1, 2, 3))[:, 0]

    inputs = [(4, 1), (4, 3), (4, 3)]


class Momenta(torch.nn.Module):
    """Four-momenta, with a gate per grade from invariants."""

    metric = (1.0, -1.0, -1.0, -1.0)

    def __init__(self, kit):
        super().__init__()
        self.algebra = algebra = kit.algebra(self.metric)
        self.net = torch.nn.Sequential(
            kit.connected(algebra, 2, 3, normalization_init=None), kit.norm(algebra, 3)
        )
        self.weights = torch.nn.Linear(3 * algebra.n_subspaces, 3 * algebra.n_subspaces)

    def forward(self, momenta):
        x = self.net(self.algebra.embed_grade(momenta, 1))
        forms = self.algebra.qs(x, grades=self.algebra.grades[1:])
        invariants = torch.cat([x[..., :1], *forms], dim=-1).flatten(1)
        gates = self.weights(invariants).view(len(x), 3, self.algebra.n_subspaces)
        x = x * torch.sigmoid(gates.repeat_interleave(self.algebra.subspaces, dim=2))
        return torch.cat(self.algebra.norms(x), dim=-1)

    inputs = [(5, 2, 4)]


class Events(Momenta):
    """Momenta with time first, which is not flashcliff's order of vectors."""

    metric = (-1.0, 1.0, 1.0, 1.0)


MODELS = [Invariants, Pseudoscalar, Messages, Momenta, Events]


def run(model, inputs):
    inputs = [x.clone().requires_grad_() for x in inputs]
    output = model(*inputs)
    loss = (output * random(*output.shape, seed=9)).sum()
    return output, torch.autograd.grad(loss, [*inputs, *model.parameters()])


@pytest.mark.parametrize("kit", [ALGEBRA, LAYERS], ids=["algebra", "layers"])
@pytest.mark.parametrize("model", MODELS)
def test_models(model, kit):
    reference, ours = disturb(model(THEIRS)), model(kit)
    inputs = [random(*shape, seed=i) for i, shape in enumerate(model.inputs)]
    # State dicts are the same, and load strictly both ways.
    state = reference.state_dict()
    assert {n: v.shape for n, v in ours.state_dict().items()} == {
        n: v.shape for n, v in state.items()
    }
    ours.load_state_dict(state)
    reference.load_state_dict(ours.state_dict())
    reference.load_state_dict(cgenn.state_dict(ours))
    assert [n for n, _ in ours.named_parameters()] == [n for n, _ in reference.named_parameters()]
    (got, grads), (want, wanted) = run(ours, inputs), run(reference, inputs)
    assert difference(got, want) < 1e-12
    largest = max(w.abs().max() for w in wanted)
    for g, w in zip(grads, wanted, strict=True):
        # A bias that cancels has a gradient of rounding errors alone.
        scale = torch.maximum(w.abs().max(), 1e-3 * largest)
        assert g.shape == w.shape and (g - w).abs().max() <= 1e-11 * scale


@pytest.mark.parametrize("model", MODELS)
def test_layers_are_shared_parts(model):
    """One algebra, and so one set of tables, moved as one."""
    ours = model(LAYERS)
    assert len({m for m in ours.modules() if isinstance(m, cgenn.CliffordAlgebra)}) == 1
    single = ours.to(torch.float32)
    inputs = [random(*shape, dtype=torch.float32) for shape in model.inputs]
    assert single(*inputs).dtype == torch.float32


@pytest.mark.parametrize("model", MODELS)
def test_copies(model):
    """Copies and pickles compute the same and share no tables with the first."""
    ours = disturb(model(LAYERS))
    inputs = [random(*shape, seed=i) for i, shape in enumerate(model.inputs)]
    want = ours(*inputs)
    file = io.BytesIO()
    torch.save(ours.state_dict(), file)
    file.seek(0)
    loaded = model(LAYERS)
    loaded.load_state_dict(torch.load(file, weights_only=True))
    for other in (copy.deepcopy(ours), pickle.loads(pickle.dumps(ours)), loaded):
        assert torch.equal(other(*inputs), want)
        assert other.algebra.cayley.data_ptr() != ours.algebra.cayley.data_ptr()
        assert other.algebra.flashcliff_algebra is ours.algebra.flashcliff_algebra


@pytest.mark.cuda
@pytest.mark.parametrize("kit", [ALGEBRA, LAYERS], ids=["algebra", "layers"])
@pytest.mark.parametrize("model", [Invariants, Pseudoscalar, Momenta, Events])
def test_on_a_gpu(model, kit):
    ours = disturb(model(kit))
    inputs = [random(*shape, seed=i) for i, shape in enumerate(model.inputs)]
    want = ours(*inputs)
    got = ours.cuda()(*(x.cuda() for x in inputs))
    assert difference(got.cpu(), want) < 1e-12
    versor = ours.algebra.versor(2)
    turned = ours.algebra.rho(versor, ours.algebra.embed_grade(inputs[0].cuda(), 1))
    forms = [q.cpu() for q in ours.algebra.qs(turned)]
    assert difference(forms[1], (ours.algebra.metric.cpu() * inputs[0] ** 2).sum(-1, True)) < 1e-8


def structure(model, kit):
    """CGENN's module with the same parameters as a model of ours."""
    if model == "hulls":
        algebra = kit.algebra((1.0,) * 5)
        products = [kit.product(algebra, 6) for _ in range(4)]
        net = torch.nn.Sequential(kit.linear(algebra, 7, 6, subspaces=False), *products)
        mlp = torch.nn.Sequential(torch.nn.Linear(6, 6), torch.nn.SiLU(), torch.nn.Linear(6, 1))
        parts = {"algebra": algebra, "net": net, "mlp": mlp}
    elif model == "regression":
        algebra = kit.algebra((1.0,) * 5)
        gp = torch.nn.Sequential(
            kit.linear(algebra, 2, 8, subspaces=False), kit.product(algebra, 8)
        )
        mlp = torch.nn.Sequential(
            torch.nn.Linear(8, 9), torch.nn.ReLU(), torch.nn.Linear(9, 9), torch.nn.ReLU(),
            torch.nn.Linear(9, 1),
        )  # fmt: skip
        parts = {"algebra": algebra, "gp": gp, "mlp": mlp}
    else:
        algebra = kit.algebra((1.0, 1.0, 1.0))
        gates = [kit.gate(algebra, 5) for _ in range(3)]
        net = torch.nn.Sequential(
            kit.connected(algebra, 3, 5), *gates, kit.connected(algebra, 5, 1)
        )
        parts = {"algebra": algebra, "net": net}
    module = torch.nn.Module()
    for name, part in parts.items():
        module.add_module(name, part)
    return module


@pytest.mark.parametrize("name", ["hulls", "regression", "volumes"])
def test_weights_go_there_and_back(name):
    model = {
        "hulls": lambda: nn.models.Hulls(7, 6),
        "regression": lambda: nn.models.Regression(9),
        "volumes": lambda: nn.models.Volumes(features=5),
    }[name]
    ours, reference = disturb(model()), structure(name, THEIRS)
    state = cgenn.state_dict(ours)
    reference.load_state_dict(state)
    assert {n: (v.shape, v.dtype) for n, v in reference.state_dict().items()} == {
        n: (v.shape, v.dtype) for n, v in state.items()
    }
    again = model()
    cgenn.load_state_dict(again, reference.state_dict())
    for key, value in ours.state_dict().items():
        assert torch.equal(again.state_dict()[key], value)


def test_tables_are_added_where_there_is_an_algebra():
    # 18 modules with an algebra, 6 tables each.
    model = nn.models.Hulls()
    assert len(cgenn.state_dict(model)) - len(model.state_dict()) == 108
    bare = cgenn.MVLinear(cgenn.CliffordAlgebra((1.0, 1.0)).flashcliff_algebra, 2, 3)
    assert list(bare.state_dict()) == ["weight", "bias"]
    assert list(cgenn.state_dict(bare))[2:] == [
        f"algebra.{name}" for name in cgenn.CliffordAlgebra((1.0, 1.0)).state_dict()
    ]


def test_what_has_no_counterpart():
    rest = [nn.SGPNorm((3, 0, 0), 2), nn.FlashCliffordLayer((3, 0, 0), 2), nn.MVGate((3, 0, 0))]
    for layer in rest:
        with pytest.raises(
            ValueError, match=f"1: CGENN has no counterpart of {type(layer).__name__}"
        ):
            cgenn.state_dict(torch.nn.Sequential(torch.nn.ReLU(), layer))
    some = nn.MVLinear((3, 0, 0), 2, 2, bias=False, grades=(1,))
    with pytest.raises(ValueError, match="module: CGENN has no counterpart of MVLinear"):
        cgenn.state_dict(some)
