"""Forces of a small model of an energy: gradients of positions that are trained on, and the checks of flashcliff.testing."""

import pytest
import torch
from nn_common import check_by_differences

import flashcliff
from flashcliff import functional as F
from flashcliff import nn, testing

SPACE = flashcliff.Algebra(3)
PARTICLES = 6


class Energy(torch.nn.Module):
    """The energy of particles at ``[particles, 3]``: sums of relative positions as multivectors, a product, invariants."""

    def __init__(self, channels=8, product=nn.SGPNorm):
        super().__init__()
        self.lift = nn.MVLinear(SPACE, 2, channels)
        self.mix = nn.MVLinear(SPACE, channels, channels)
        self.product = product(SPACE, channels)
        self.head = torch.nn.Sequential(
            torch.nn.Linear(3 * channels, 16), torch.nn.SiLU(), torch.nn.Linear(16, 1)
        )

    def forward(self, positions):
        apart = positions[None] - positions[:, None]
        square = apart.square().sum(-1)
        radial = torch.stack([torch.exp(-square), 1 / (1 + square)], -1)
        vectors = torch.einsum("ijx,ijc->xic", apart, radial)
        x = self.lift(
            nn.embed_grade(vectors, 1, SPACE) + nn.embed_grade(radial.sum(1)[None], 0, SPACE)
        )
        y = self.product(x, self.mix(x))
        # The length of a scalar has a kink at 0, and a product of two sums of vectors has no trivectors.
        squares = F.grade_norms(y, SPACE)[1:3].square()
        invariants = torch.cat([y[:1], squares]).movedim(0, -1).flatten(-2)
        return self.head(invariants).sum()


def make(dtype=torch.float64, **options):
    torch.manual_seed(0)
    return Energy(**options).to(dtype), 1.5 * torch.randn(PARTICLES, 3, dtype=dtype)


def forces(energy, positions, create_graph=True):
    x = positions if positions.requires_grad else positions.detach().requires_grad_()
    return -torch.autograd.grad(energy(x), x, create_graph=create_graph)[0]


class Linear(torch.nn.Module):
    """A product that is not normalized and one that is fully connected, in one layer."""

    def __init__(self, algebra, channels):
        super().__init__()
        paths = algebra.path_count
        self.weight = torch.nn.Parameter(torch.randn(channels, paths) / 8)
        self.connected = torch.nn.Parameter(torch.randn(paths, channels, channels) / 16)

    def forward(self, x, y):
        z = F.sgp_norm(x, y, self.weight, SPACE, gate="silu", norm="none")
        return F.fcgp_norm(x, z, self.connected, SPACE, gate="silu")


MODELS = {"sgp_norm": nn.SGPNorm, "fcgp_norm": Linear}
models = pytest.mark.parametrize("product", MODELS.values(), ids=MODELS)


@models
def test_forces_are_differences_of_the_energy(product):
    energy, positions = make(product=product)
    found = forces(energy, positions)
    step = 1e-5
    for at in range(positions.numel()):
        moved = torch.zeros_like(positions).flatten()
        moved[at] = step
        moved = moved.view_as(positions)
        difference = (energy(positions + moved) - energy(positions - moved)) / (2 * step)
        assert abs(difference + found.flatten()[at]) < 1e-8


@models
def test_gradients_of_a_force_loss_are_differences(product):
    """For each parameter, along a random direction."""
    energy, positions = make(product=product)
    target = torch.randn_like(positions)

    def loss():
        return (forces(energy, positions) - target).square().sum()

    check_by_differences(loss, energy.named_parameters())


@models
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_training_on_forces_learns_them(product, dtype):
    energy, _ = make(dtype, product=product)
    places = 1.5 * torch.randn(8, PARTICLES, 3, dtype=dtype)

    def pairs(x):
        """A potential that is to be learned: repulsion of each pair."""
        return torch.exp(-torch.pdist(x).square()).sum()

    wanted = torch.stack([forces(pairs, x) for x in places]).detach()
    optimiser = torch.optim.Adam(energy.parameters(), lr=1e-2)
    losses = []
    for _ in range(30):
        optimiser.zero_grad()
        found = torch.stack([forces(energy, x) for x in places])
        loss = (found - wanted).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < 0.5 * losses[0]
    assert all(
        p.grad is not None and torch.isfinite(p.grad).all() for p in list(energy.parameters())[:-1]
    )


@models
def test_a_force_loss_by_transforms_is_that_by_autograd(product):
    energy, positions = make(product=product)
    parameters = {name: p.detach() for name, p in energy.named_parameters()}

    def loss(parameters):
        def of(x):
            return torch.func.functional_call(energy, parameters, (x,))

        return torch.func.grad(of)(positions).square().sum()

    found = torch.func.grad(loss)(parameters)
    names, leaves = zip(*energy.named_parameters())
    wanted = torch.autograd.grad(
        forces(energy, positions).square().sum(), leaves, materialize_grads=True
    )
    for name, want in zip(names, wanted):
        assert torch.allclose(found[name], want, rtol=1e-9, atol=1e-12)


@models
def test_forces_turn_with_the_particles(product):
    energy, positions = make(product=product)
    error = testing.check_equivariance(
        lambda x: forces(energy, x), SPACE, positions, of="vector", to="vector", count=6
    )
    assert error < 1e-11
    assert testing.check_equivariance(energy, SPACE, positions, of="vector", to="invariant") < 1e-12


@models
def test_forces_stay_when_all_particles_are_moved(product):
    energy, positions = make(product=product)
    found = forces(energy, positions)
    moved = forces(energy, positions + torch.tensor([3.0, -1, 2]))
    assert (moved - found).abs().max() < 1e-12 * found.abs().max() * 10
    # So they add up to nothing.
    assert found.sum(0).abs().max() < 1e-12


@models
def test_forces_have_no_curl_in_float32(product):
    energy, positions = make(torch.float32, product=product)
    jacobian = torch.func.jacrev(lambda x: -torch.func.grad(energy)(x))(positions)
    jacobian = jacobian.reshape(positions.numel(), -1)
    assert (jacobian - jacobian.T).abs().max() < 1e-5 * jacobian.abs().max()


@models
def test_energy_is_kept_in_a_simulation(product):
    energy, positions = make(product=product)
    found = testing.check_conservation(energy, positions, steps=50, time_step=0.01)
    assert found.gradient == 0 and found.curl < 1e-12
    assert found.drift < 1e-3 and 1.8 < found.order < 2.2
    single = testing.check_conservation(energy.float(), positions.float(), tolerance=1e-5)
    assert single.curl < 1e-5


# The checks themselves


def test_forces_of_their_own_are_found():
    """A network that predicts forces beside the energy, and a force that turns around an axis."""
    energy, positions = make()
    with pytest.raises(AssertionError, match=r"not minus the gradient of the energy: off by \d"):
        testing.check_conservation(energy, positions, forces=lambda x: forces(energy, x) + x)

    def turning(x):
        return x @ torch.tensor([[0.0, 1, 0], [-1, 0, 0], [0, 0, 0]], dtype=x.dtype)

    with pytest.raises(AssertionError, match="Jacobian of the forces is not symmetric"):
        testing.check_conservation(lambda x: (x * 0).sum(), positions, forces=turning)


def test_steps_that_are_too_long_are_found():
    stiff = lambda x: 1e4 * x.square().sum()  # noqa: E731
    with pytest.raises(AssertionError, match="changes in a simulation: off by .* shorter steps"):
        testing.check_conservation(stiff, torch.ones(2, 3, dtype=torch.float64), time_step=0.1)


def test_functions_that_are_not_equivariant_are_found():
    x = torch.randn(8, 5, 4, dtype=torch.float64)
    biased = nn.MVLinear(SPACE, 4, 4, bias_mode="every_blade").double()
    with torch.no_grad():
        biased.bias.fill_(1)
    for wrong in (torch.sin, biased, lambda x: x * torch.nan):
        with pytest.raises(AssertionError, match=r"output 0 is not equivariant .* off by (\d|nan)"):
            testing.check_equivariance(wrong, SPACE, x)
    # Duals change their sign under reflections.
    with pytest.raises(AssertionError, match="a product of 1 reflections"):
        testing.check_equivariance(lambda x: F.dual(x, SPACE), SPACE, x)
    assert (
        testing.check_equivariance(lambda x: F.dual(x, SPACE), SPACE, x, reflections=False) < 1e-12
    )


@pytest.mark.parametrize(
    "signature", [(2, 0, 0), (3, 0, 0), (3, 0, 1), (1, 3, 0), (4, 1, 0)], ids=str
)
def test_products_are_equivariant_in_every_algebra(signature):
    algebra = flashcliff.Algebra(*signature)
    x, y = torch.randn(2, algebra.blade_count, 3, 2, dtype=torch.float64)
    weight = torch.randn(2, algebra.path_count, dtype=torch.float64)
    error = testing.check_equivariance(
        lambda x, y: (F.sgp_norm(x, y, weight, algebra), F.grade_norms(x, algebra)),
        algebra,
        x,
        y,
        to=("multivector", "invariant"),
        count=6,
    )
    assert error < 1e-9


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda x: testing.check_equivariance(torch.sin, SPACE, x, of="spinor"), ValueError, "of: expected one of"),
        (lambda x: testing.check_equivariance(torch.sin, SPACE, x[:7]), ValueError, r"must be \[8, \.\.\.\]"),
        (lambda x: testing.check_equivariance(torch.sin, SPACE, x, of="vector"), ValueError, r"must be \[\.\.\., 3\]"),
        (lambda x: testing.check_equivariance(torch.sin, SPACE, [1.0]), TypeError, "expected tensors, got list"),
        (lambda x: testing.check_equivariance(torch.sin, SPACE, x, of=("vector",) * 2), ValueError, "a kind for each of 1"),
        (lambda x: testing.check_equivariance(torch.sin, SPACE, x, count=0), ValueError, "count: expected at least 1"),
        (lambda x: testing.check_equivariance(lambda x: x[:2], SPACE, x), ValueError, r"must be \[8"),
        (lambda x: testing.check_equivariance(torch.sin, (0, 0, 2), x[:4]), ValueError, "an algebra with reflections"),
        (lambda x: testing.check_equivariance(lambda x: None, SPACE, x), TypeError, "function: expected one that gives a tensor, .* got NoneType"),
        (lambda x: testing.check_equivariance(lambda x: {"x": x}, SPACE, x), TypeError, "function: expected .* got dict"),
        (lambda x: testing.check_equivariance(lambda x: (x, 1.0), SPACE, x), TypeError, "function: expected .* got float"),
        (lambda x: testing.check_conservation(lambda x: x.detach().sum(), x), ValueError, "energy: expected a result that PyTorch can"),
        (lambda x: testing.check_conservation(lambda x: x.square().sum(), x, forces=torch.ones_like), ValueError, "forces: expected a result"),
        (lambda x: testing.check_conservation(lambda x: x.square().sum(), x, forces=len), TypeError, "forces: expected .* got int"),
        (lambda x: testing.check_conservation(torch.sum, x.long()), TypeError, "floating-point numbers, got torch.int64"),
        (lambda x: testing.check_conservation(torch.sin, x), ValueError, "a tensor with one number"),
        (lambda x: testing.check_conservation(torch.sum, x, steps=0), ValueError, "at least one step"),
    ],
    ids=range(17),
)  # fmt: skip
def test_wrong_calls_are_errors(call, error, says):
    with pytest.raises(error, match=says):
        call(torch.randn(8, 3, 4, dtype=torch.float64))
