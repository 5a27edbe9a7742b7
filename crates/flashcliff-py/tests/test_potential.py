"""Potentials of atoms: energies by their formula, symmetries, forces, stress, batches, neighbours."""

import copy
import importlib.util
import math
import sys

import nn_reference as reference
import pytest
import reference as operators
import torch
from nn_common import check_by_differences, disturb, random
from test_capture import Descent, fake  # noqa: F401

import flashcliff
from flashcliff import Algebra, MissingPackageError, atoms, nn, testing
from flashcliff import functional as F
from flashcliff.atoms import Structures, derivatives, neighbours
from flashcliff.nn import potential

SPACE = Algebra(3)
TABLE = reference.Table(3)
F64 = {"dtype": torch.float64}
CUTOFF = 2.0
needs_vesin = pytest.mark.skipif(
    importlib.util.find_spec("vesin") is None, reason="vesin is not installed"
)


# Structures, without a library


def images(positions, cutoff, cell=None, pbc=(False,) * 3, reach=4):
    """The edges of all images within a cut-off: all pairs of atoms, all shifts."""
    cell = torch.zeros(3, 3, **F64) if cell is None else cell
    ranges = [torch.arange(-reach, reach + 1) if own else torch.zeros(1).long() for own in pbc]
    shifts = torch.cartesian_prod(*ranges)
    apart = positions[None, :, None] - positions[:, None, None] + shifts.double() @ cell
    near = apart.norm(dim=-1) < cutoff
    near[torch.eye(len(positions), dtype=torch.bool)] &= shifts.any(-1)
    i, j, shift = near.nonzero().T
    return torch.stack([j, i]), shifts[shift]


def structure(atoms=9, seed=0, cell=None, cutoff=CUTOFF, elements=2, positions=None):
    if positions is None:
        positions = 1.1 * random(atoms, 3, seed=seed)
    species = torch.arange(len(positions)) % elements
    edges, shifts = images(positions, cutoff, cell, (cell is not None,) * 3)
    return Structures(positions, species, edges, shifts, None if cell is None else cell[None])


def crystal(atoms=3, seed=0, cutoff=CUTOFF):
    """A skewed cell that is smaller than the cut-off, so that each atom neighbours its own images."""
    cell = 1.7 * torch.eye(3, **F64) + 0.2 * random(3, 3, seed=9)
    return structure(cell=cell, cutoff=cutoff, positions=random(atoms, 3, seed=seed))


def make(layers=2, channels=3, dtype=torch.float64, numbers=(14, 6), cutoff=CUTOFF):
    torch.manual_seed(0)
    model = nn.Potential(numbers, cutoff, channels, layers, hidden=5, neighbours=3.0, **F64)
    disturb(model)
    with torch.no_grad():
        model.shift.copy_(torch.tensor([-1.5, 0.25])[: len(numbers)])
        model.scale.copy_(torch.tensor([1.25, 0.75])[: len(numbers)])
    return model.to(dtype)


# The formula


def envelope(d, p=6):
    """DimeNet's, as it is written there."""
    return 1 - (p + 1) * (p + 2) / 2 * d**p + p * (p + 2) * d ** (p + 1) - p * (p + 1) / 2 * d ** (p + 2)


def network(x, p, name):
    x = x @ p[f"{name}.0.weight"].T
    return (x * torch.sigmoid(x)) @ p[f"{name}.2.weight"].T


def outer(blades, x):
    """Numbers of blades times numbers of channels, ``[blades, channels]``."""
    return torch.tensor(blades, **F64)[:, None] * x


def by_formula(model, positions, species, edges):
    """The energy, atom by atom and edge by edge, with tensors as matrices."""
    p = dict(model.named_parameters())
    space, count = TABLE.space, len(positions)
    linear = lambda x, name: operators.mv_linear(space, x, p[name], None)  # noqa: E731
    received = [[] for _ in range(count)]
    for j, i in edges.T.tolist():
        vector = positions[j] - positions[i]
        r = vector.norm()
        d = r / model.cutoff
        basis = [torch.cos(n * torch.arccos(2 * d - 1)) * envelope(d) for n in range(8)]
        weights = network(torch.stack(basis), p, "radial").view(model.layer_count, -1)
        received[i].append((j, vector / r, weights))
    root = 1 / math.sqrt(model.neighbours)
    x, tensors = [], []
    for i, own in enumerate(received):
        total, tensor = torch.zeros(8, model.channels, **F64), torch.zeros(3, 3, model.channels, **F64)
        for j, u, weights in own:
            one = weights[0] * p["senders"][species[j]] * p["receivers"][species[i]] * root
            total = total + outer([1, *u.tolist(), 0, 0, 0, 0], one)
            tensor = tensor + (torch.outer(u, u) - torch.eye(3, **F64) / 3)[..., None] * one
        weight = torch.cat([p["embedding.weight"], torch.zeros_like(p["embedding.weight"])], -1)
        x.append(operators.mv_linear(space, total[:, None], weight, None)[:, 0])
        tensors.append(tensor)
    x, tensors = torch.stack(x, 1), torch.stack(tensors, 2)
    for layer in range(model.layer_count):
        if layer:
            y, sums = linear(x, f"messages.{layer - 1}.before.weight"), torch.zeros_like(x)
            for i, own in enumerate(received):
                for j, u, weights in own:
                    edge = outer([1, *u.tolist(), 0, 0, 0, 0], root * weights[layer])
                    sums[:, i] += torch.einsum("ikj,ic,kc->jc", operators.table(space), edge, y[:, j])
            x = x + linear(sums, f"messages.{layer - 1}.after.weight")
        name = f"updates.{layer}."
        left, right = linear(x, name + "left.weight"), linear(x, name + "right.weight")
        weight = p[name + "weight"]
        z = operators.sgp_norm(space, left, right, weight, gate="none", norm="none").clone()
        own = 1.5 * tensors @ p[name + "tensors.weight"].T
        z[0] += (1.5 * tensors * own).sum((0, 1))
        z[1:4] += torch.einsum("xync,ync->xnc", own, left[1:4])
        z = operators.mv_silu(space, z, p[name + "gate.a"][0], p[name + "gate.b"][0], "mag2")
        x = x + linear(z, name + "after.weight")
    energies = network(x[0], p, "energy")[:, 0]
    return (energies * model.scale[species] + model.shift[species]).sum()


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_energies_atom_by_atom(layers):
    model, given = make(layers), structure()
    assert given.edge_count >= 20
    with torch.no_grad():
        want = by_formula(model, given.positions, given.species, given.edge_index)
        assert (model(given)[0] - want).abs() < 1e-11 * want.abs()


def test_functions_of_lengths_and_directions():
    vectors = 0.4 * random(3, 50, 1)
    radial, angular = potential._functions(vectors)
    d = vectors.norm(dim=0)
    inside = d < 1
    assert 0.3 < inside.double().mean() < 1 and inside.any()
    for n in range(potential.RADIAL):
        want = torch.cos(n * torch.arccos((2 * d - 1).clamp(-1, 1))) * envelope(d)
        assert (radial[n] - want)[inside].abs().max() < 1e-12
        assert (radial[n][~inside] == 0).all()
    assert (angular[:3] - vectors / d).abs().max() < 1e-15
    assert (angular[3:].square().sum(0) - 1).abs().max() < 1e-14


def test_a_tensor_knows_squares_of_cosines():
    """Products of sums of scalars and vectors give 1 and cos; the tensor gives cos^2, and is the sum of reflections."""
    u = torch.nn.functional.normalize(random(3, 6), dim=0)
    _, angular = potential._functions(0.5 * u[..., None])
    sums = angular.sum(1, keepdim=True)
    v = random(8, 1, 1, seed=3)
    zero, weight = torch.zeros_like(v), torch.zeros(1, SPACE.path_count, **F64)
    out = potential._products(v, zero, sums, sums, weight)
    cosines = u.T @ u
    assert abs(out[0].item() - 9 / 4 * (cosines.square() - 1 / 3).sum().item()) < 1e-12
    edges = nn.embed_grade(u[:, :, None], 1, SPACE)
    vectors = nn.embed_grade(v[1:4].expand(3, 6, 1), 1, SPACE)
    reflections = F.sandwich(edges, vectors, SPACE).sum(1, keepdim=True)[1:4]
    # The sum of u v u is 2 T v - (count / 3) v, and the operator has 3/2 T.
    assert (reflections - (4 / 3 * out[1:4] - 2 * v[1:4])).abs().max() < 1e-12


# Symmetries


def energy_at(model, given):
    return lambda x: model(given.replaced(positions=x))


def forces_at(model, given):
    return lambda x: derivatives(model, given.replaced(positions=x), create_graph=True).forces


def test_energies_and_forces_turn_with_the_atoms():
    model, given = make(), structure()
    x = given.positions
    options = {"of": "vector", "count": 6, "tolerance": 1e-10}
    testing.check_equivariance(energy_at(model, given), SPACE, x, to="invariant", **options)
    testing.check_equivariance(forces_at(model, given), SPACE, x, to="vector", **options)


def test_energies_stay_when_atoms_are_moved_or_renamed():
    model, given = make(), structure()
    found = derivatives(model, given)
    moved = derivatives(model, given.replaced(positions=given.positions + random(3, seed=5)))
    order = torch.randperm(given.atom_count)
    named = torch.argsort(order)
    renamed = Structures(
        given.positions[order], given.species[order], named[given.edge_index[:, torch.randperm(given.edge_count)]]
    )
    for other, back in ((moved, torch.arange(len(order))), (derivatives(model, renamed), named)):
        assert (other.energies - found.energies).abs() < 1e-12 * found.energies.abs()
        assert (other.forces[back] - found.forces).abs().max() < 1e-11 * found.forces.abs().max()
    assert found.forces.sum(0).abs().max() < 1e-12 * found.forces.abs().max()


def test_elements_differ():
    model, given = make(), structure()
    other = Structures(given.positions, 1 - given.species, given.edge_index)
    assert (model(other) - model(given)).abs() > 1e-3


def test_energies_of_structures_that_are_far_apart_add_up():
    model = make()
    one, two = structure(7, 1), structure(5, 2)
    both = Structures(
        torch.cat([one.positions, two.positions + 100]),
        torch.cat([one.species, two.species]),
        torch.cat([one.edge_index, two.edge_index + 7], 1),
    )
    assert (model(both) - model(one) - model(two)).abs() < 1e-12 * model(both).abs()


def test_a_larger_cell_has_so_many_times_the_energy():
    model, one = make(), crystal()
    rows = [one.positions + shift * one.cell[0, 0] for shift in range(2)]
    cell = one.cell[0] * torch.tensor([[2.0], [1.0], [1.0]], **F64)
    edges, shifts = images(torch.cat(rows), CUTOFF, cell, (True,) * 3)
    two = Structures(torch.cat(rows), one.species.repeat(2), edges, shifts, cell[None])
    found, want = derivatives(model, two, stress=True), derivatives(model, one, stress=True)
    assert (found.energies - 2 * want.energies).abs() < 1e-11 * found.energies.abs()
    assert (found.forces - want.forces.repeat(2, 1)).abs().max() < 1e-11 * want.forces.abs().max()
    assert (found.stress - want.stress).abs().max() < 1e-11 * want.stress.abs().max()


# The cut-off


def test_energies_and_forces_are_continuous_at_the_cutoff():
    """Towards the cut-off a dimer's energy falls with the third power of the gap, and its force with the second."""
    model = make()
    shift = model.shift.sum()
    gaps = torch.tensor([1e-2, 5e-3, 2.5e-3], **F64)
    energies, forces = [], []
    for gap in gaps.tolist():
        x = torch.tensor([[0.0, 0, 0], [0, 0, CUTOFF - gap]], **F64)
        found = derivatives(model, structure(positions=x))
        energies.append((found.energies - shift).abs().item())
        forces.append(found.forces.norm().item())
    for values, power in ((energies, 3), (forces, 2)):
        for large, small in zip(values[:-1], values[1:]):
            assert abs(math.log2(large / small) - power) < 0.2


def test_longer_edges_change_nothing():
    model, near = make(), structure()
    far = structure(cutoff=1.6 * CUTOFF)
    assert far.edge_count > 1.5 * near.edge_count
    for got, want in zip(derivatives(model, far)[:2], derivatives(model, near)[:2]):
        assert (got - want).abs().max() < 1e-13 * want.abs().max()


def test_atoms_without_neighbours_have_their_shift():
    model = make()
    alone = structure(positions=torch.zeros(1, 3, **F64))
    apart = structure(positions=torch.tensor([[0.0, 0, 0], [9, 0, 0], [0, 9, 0]], **F64))
    lone = structure(positions=torch.tensor([[0.0, 0, 0], [9, 0, 0], [9, 0, 1]], **F64))
    none = Structures(torch.zeros(0, 3, **F64), torch.zeros(0).long(), torch.zeros(2, 0).long())
    a, b = model.shift.tolist()
    for given, want in ((alone, a), (apart, 2 * a + b), (none, 0.0)):
        found = derivatives(model, given, stress=True, create_graph=True)
        assert found.energies.tolist() == [want] and not found.forces.any()
    found = derivatives(model, lone)
    assert not found.forces[0].any() and found.forces[1:].any()
    batch = Structures.stack([alone, none, lone, none])
    energies = model(batch)
    assert energies.shape == (4,) and energies[1] == energies[3] == 0
    assert torch.allclose(energies[[0, 2]], torch.cat([model(alone), model(lone)]), rtol=1e-13)


def test_vectors_that_cancel_have_finite_derivatives():
    """The middle of a row of three atoms has the vector 0, where a length would have a kink."""
    model = make()
    row = structure(positions=torch.tensor([[-1.0, 0, 0], [0, 0, 0], [1, 0, 0]], **F64), elements=1)
    found = derivatives(model, row, create_graph=True)
    grads = torch.autograd.grad(found.forces.square().sum(), model.parameters(), materialize_grads=True)
    assert all(own.isfinite().all() for own in grads)
    assert found.forces[1].abs().max() < 1e-13


# Forces and stress


@pytest.mark.parametrize("make_structure", [structure, crystal])
def test_forces_and_stress_are_differences(make_structure):
    model, given = make(), make_structure()
    found = derivatives(model, given, stress=True)
    step = 1e-5

    def slope(of):
        with torch.no_grad():
            return (model(of(step)) - model(of(-step))).item() / (2 * step)

    for at in ((0, 0), (1, 2), (2, 1)):

        def moved(by, at=at):
            x = given.positions.clone()
            x[at] += by
            return given.replaced(positions=x)

        assert abs(slope(moved) + found.forces[at].item()) < 1e-7 * found.forces.abs().max()
    if make_structure is structure:
        assert not found.stress.isfinite().any()
        return
    volume = torch.linalg.det(given.cell[0]).abs().item()
    assert (found.stress - found.stress.mT).abs().max() < 1e-12
    # The cell itself is deformed, and neighbours of the first one stay.
    edges, shifts = images(given.positions, CUTOFF, given.cell[0], (True,) * 3)
    for i, j in ((0, 0), (1, 2), (2, 0)):

        def strained(by, i=i, j=j):
            strain = torch.eye(3, **F64)
            strain[i, j] += by
            return Structures(given.positions @ strain, given.species, edges, shifts, given.cell @ strain)

        assert abs(slope(strained) / volume - found.stress[0, i, j].item()) < 1e-7


def test_forces_conserve_the_energy():
    model, given = make(), structure()
    found = testing.check_conservation(
        energy_at(model, given), given.positions, steps=40, time_step=0.005
    )
    assert found.curl < 1e-12 and found.gradient == 0 and 1.8 < found.order < 2.2


@pytest.mark.parametrize("make_structure", [structure, crystal])
def test_forces_have_no_curl_in_float32(make_structure):
    model = make(dtype=torch.float32)
    given = make_structure().to(dtype=torch.float32)
    jacobian = torch.func.jacrev(forces_at(model, given))(given.positions)
    jacobian = jacobian.reshape(given.positions.numel(), -1)
    assert (jacobian - jacobian.T).abs().max() < 1e-5 * jacobian.abs().max()


def test_gradients_of_a_loss_on_forces_are_differences():
    model, given = make(), crystal()

    def loss():
        found = derivatives(model, given, stress=True, create_graph=True)
        return found.energies.sum() + found.forces.square().sum() + found.stress.square().sum()

    check_by_differences(loss, model.named_parameters())


def test_results_without_a_graph_are_detached():
    model, given = make(), structure()
    with torch.no_grad():
        found = derivatives(model, given)
    assert not any(own.requires_grad for own in found[:2])
    assert not given.positions.requires_grad and given.strain is None


def test_inference_mode_has_forces():
    """Training loops evaluate in it."""
    model, given = make(), crystal()
    want = derivatives(model, given, stress=True)
    with torch.inference_mode():
        for own in given, crystal():
            assert all(map(torch.equal, derivatives(model, own, stress=True), want))


def test_autocast_changes_nothing():
    """Energies and positions lose too much in 16 bits."""
    model, given = make().float(), crystal().to(dtype=torch.float32)
    want = derivatives(model, given, stress=True)
    with torch.autocast("cpu", torch.bfloat16):
        found = derivatives(model, given, stress=True)
        strained = given.replaced(strain=torch.full((1, 3, 3), 0.1)).vectors()
    assert all(map(torch.equal, found, want))
    assert strained.dtype == torch.float32


def test_bits_repeat():
    model, given = make(dtype=torch.float32), crystal().to(dtype=torch.float32)
    first, again = (derivatives(model, given, stress=True) for _ in range(2))
    assert all(torch.equal(*pair) for pair in zip(first, again))


def test_state_dicts_have_the_energies_of_elements():
    model, given = make(), structure()
    other = nn.Potential((14, 6), CUTOFF, 3, 2, 5, 3.0, **F64)
    other.load_state_dict(model.state_dict())
    assert torch.equal(other(given), model(given))


# Batches


def test_batches_have_the_results_of_their_structures():
    model, many = make(), [structure(7, 1), crystal(3, 2), structure(4, 3), crystal(2, 5)]
    whole = derivatives(model, Structures.stack(many), stress=True)
    filled = Structures.stack(many, atoms=20, edges=sum(own.edge_count for own in many) + 31)
    assert (filled.count, filled.atom_count) == (5, 20)
    # No atom has a sum that is much longer than others.
    more = filled.edge_index[:, -31:]
    assert torch.equal(more[0], more[1]) and more[0].bincount(minlength=20).max() == 2
    filled = derivatives(model, filled, stress=True, create_graph=True)
    assert all(own.isfinite().all() for own in filled[:2])
    at = 0
    for index, own in enumerate(many):
        want = derivatives(model, own, stress=True)
        for got in (whole, filled):
            assert (got.energies[index] - want.energies).abs() < 1e-12 * want.energies.abs()
            forces = got.forces[at : at + own.atom_count]
            assert (forces - want.forces).abs().max() < 1e-12 * want.forces.abs().max()
            assert torch.allclose(got.stress[index], want.stress[0], rtol=1e-10, atol=1e-13, equal_nan=True)
        at += own.atom_count
    # Atoms that fill a batch have no forces.
    assert not filled.forces[at:].any()


def test_batches_have_the_strains_of_their_structures():
    strain = 0.1 * random(1, 3, 3)
    parts = [structure(4, 3), crystal(3, 2).replaced(strain=strain)]
    whole = Structures.stack(parts)
    assert torch.equal(whole.vectors(), torch.cat([part.vectors() for part in parts]))
    filled = Structures.stack(parts, atoms=9, edges=whole.edge_count + 2)
    assert torch.equal(filled.strain, torch.cat([torch.zeros(1, 3, 3), strain, torch.zeros(1, 3, 3)]))
    assert Structures.stack(parts[:1]).strain is None


def test_losses_on_stress_beside_structures_without_cells_have_gradients():
    model, many = make(), [structure(7, 1), crystal(3, 2)]
    whole = derivatives(model, Structures.stack(many), stress=True, create_graph=True)
    alone = derivatives(model, many[1], stress=True, create_graph=True)
    assert whole.stress[0].isnan().all()
    losses = whole.stress[1].square().sum(), alone.stress[0].square().sum()
    found, want = (
        torch.autograd.grad(loss, model.parameters(), materialize_grads=True) for loss in losses
    )
    for got, expected in zip(found, want, strict=True):
        assert torch.allclose(got, expected, rtol=1e-9, atol=1e-12)


def test_structures_are_trees_of_tensors():
    from torch.utils import _pytree as pytree

    given = Structures.stack([crystal(), structure()])
    leaves, spec = pytree.tree_flatten(given)
    again = pytree.tree_unflatten(leaves, spec)
    assert torch.equal(make()(again), make()(given)) and repr(again) == repr(given)
    assert "Structures(2 structures, 12 atoms" in repr(given)
    other = pytree.tree_flatten(Structures.stack([crystal(), structure(4)]))[1]
    assert repr(spec) != repr(other)


def test_captured_steps_take_structures(fake):  # noqa: F811
    """With a recorder on the CPU: batches of other structures, filled up to one shape, are steps of one graph."""
    model = make()
    twin = copy.deepcopy(model)

    def trainer(model):
        optimiser = Descent(model.parameters(), lr=1e-4)

        def step(given, forces):
            optimiser.zero_grad()
            found = derivatives(model, given, stress=True, create_graph=True)
            loss = found.energies.square().sum() + (found.forces - forces).square().sum()
            loss.backward()
            optimiser.step()
            return loss, found.stress

        return step

    eager, recorded = trainer(model), flashcliff.capture(trainer(twin), modules=twin, fallback="error")
    for at in range(6):
        given = Structures.stack([structure(9, at), crystal(3, at)], atoms=14, edges=800)
        forces = random(14, 3, seed=at)
        for got, want in zip(recorded(given, forces), eager(given, forces)):
            assert torch.allclose(got, want, rtol=1e-12, atol=0, equal_nan=True)
    (recorder,) = fake
    assert (recorder.runs, recorder.records, recorder.replays) == (3, 1, 3)
    for got, want in zip(twin.parameters(), model.parameters()):
        assert torch.allclose(got, want, rtol=1e-12, atol=1e-15)


def test_the_scale_of_data():
    model = make()
    many = [structure(5, 1, elements=2), structure(4, 2, elements=1), structure(6, 3)]
    energies = torch.stack([torch.bincount(own.species, minlength=2).double() for own in many])
    energies = energies @ torch.tensor([-3.0, 2.0], **F64)
    batch = Structures.stack(many)
    forces = random(batch.atom_count, 3)
    model.standardise(batch, energies, forces)
    assert torch.allclose(model.shift, torch.tensor([-3.0, 2.0], **F64))
    assert torch.allclose(model.scale, forces.square().mean().sqrt())
    model.standardise(batch, energies)
    assert (model.scale < 1e-12).all() or (model.scale == 1).all()


# Neighbours

CELLS = {
    "open": (None, (False,) * 3),
    "small": (1.3 * torch.eye(3, **F64), (True,) * 3),
    "skewed": (torch.tensor([[2.0, 0, 0], [0.9, 1.8, 0], [-0.4, 0.7, 1.5]], **F64), (True,) * 3),
    "slab": (torch.tensor([[1.5, 0.3, 0], [0, 1.7, 0], [0, 0, 0]], **F64), (True, True, False)),
    "wire": (torch.tensor([[0, 0, 0], [0, 1.2, 0.5], [0, 0, 0]], **F64), (False, True, False)),
    "box that does not repeat": (3 * torch.eye(3, **F64), (False,) * 3),
}


@needs_vesin
@pytest.mark.parametrize("name", CELLS)
@pytest.mark.parametrize("count", [1, 6])
def test_neighbours_are_all_images_within_the_cutoff(name, count):
    cell, pbc = CELLS[name]
    # Some atoms lie outside of the cell.
    positions = 1.5 * random(count, 3, seed=2)
    edges, shifts = neighbours(positions, CUTOFF, cell, pbc)
    for got, want in zip((edges, shifts), images(positions, CUTOFF, cell, pbc, reach=8)):
        assert torch.equal(got, want)


@needs_vesin
def test_structures_with_their_neighbours():
    model = make()
    cell, pbc = CELLS["skewed"]
    positions, species = random(4, 3), torch.tensor([0, 1, 1, 0])
    given = Structures.of(positions, species, CUTOFF, cell, pbc)
    wrapped = Structures.of(positions - cell[1] + cell[0], species, CUTOFF, cell, pbc)
    assert (model(given) - model(wrapped)).abs() < 1e-12 * model(given).abs()
    single = Structures.of(positions.float(), species, CUTOFF, cell, pbc)
    assert single.positions.dtype == torch.float32 and torch.equal(single.edge_index, given.edge_index)
    empty = Structures.of(positions[:0], species[:0], CUTOFF, cell, pbc)
    assert model(empty).tolist() == [0]


def test_a_package_that_is_missing_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "vesin", None)
    with pytest.raises(MissingPackageError, match="pip install vesin") as raised:
        neighbours(random(3, 3), 1.0)
    assert raised.value.name == "vesin" and isinstance(raised.value, ImportError)
    monkeypatch.setitem(sys.modules, "ase", None)
    with pytest.raises(MissingPackageError, match="pip install ase"):
        atoms.Calculator(make())


# Wrong calls

X, N = random(3, 3), torch.zeros(3).long()
PAIR = torch.tensor([[0], [1]])


@pytest.mark.parametrize(
    ("call", "error", "says"),
    [
        (lambda: nn.Potential([], 1.0), ValueError, "at least one"),
        (lambda: nn.Potential([6, 6], 1.0), ValueError, "different atomic numbers"),
        (lambda: nn.Potential([6], 0.0), ValueError, "cutoff: expected a finite number above 0"),
        (lambda: nn.Potential([6], "2"), TypeError, "cutoff: expected a number"),
        (lambda: nn.Potential([6], 2.0, layers=0), ValueError, "layers: expected at least 1"),
        (lambda: make()(structure().to(dtype=torch.float32)), TypeError, r"call `structures.to\(dtype=...\)`"),
        (lambda: make()(structure(elements=3)), ValueError, r"species: expected numbers below 2, the elements \[14, 6\], got 2"),
        (lambda: Structures(X, N - 1, PAIR), ValueError, "species: expected numbers from 0 on, got -1"),
        (lambda: make().species_of([6, 8, 14]), ValueError, r"expected elements of the potential, \[14, 6\], got \[8\]"),
        (lambda: Structures(X.half(), N, PAIR), TypeError, "float32 or float64, got torch.float16"),
        (lambda: Structures(X[:, :2], N, PAIR), ValueError, r"positions: expected \[atoms, 3\]"),
        (lambda: Structures(X, N[:2], PAIR), ValueError, r"species: expected \[3\], got \[2\]"),
        (lambda: Structures(X, N, PAIR, torch.zeros(2, 3)), ValueError, r"shifts: expected \[1, 3\]"),
        (lambda: Structures(X, N, PAIR, cell=torch.zeros(3, 3)), ValueError, r"cell: expected \[structures, 3, 3\], got \[3, 3\]; .*unsqueeze"),
        (lambda: Structures(X, N, PAIR, torch.ones(1, 3)), ValueError, "cell: expected lattice vectors, which `shifts` count"),
        (lambda: Structures(X, N, [[0], [1]]), TypeError, "edge_index: expected a torch.Tensor, got list"),
        (lambda: Structures(X, N, PAIR, batch=torch.tensor([0, 0, 1])), ValueError, "got 1 at row 2"),
        (lambda: Structures(X, N, PAIR + 3), ValueError, "expected targets from 0 to 2"),
        (lambda: structure().replaced(positions=X), ValueError, r"positions: expected \[9, 3\]"),
        (lambda: structure().replaced(strain=torch.eye(3)), ValueError, r"strain: expected \[1, 3, 3\], got \[3, 3\]"),
        (lambda: Structures(X, N + 0.5, PAIR), TypeError, "species: expected integers, got torch.float32"),
        (lambda: Structures.stack([]), ValueError, "at least one batch"),
        (lambda: Structures.stack([structure()], atoms=10), ValueError, "both `atoms` and `edges`"),
        (lambda: Structures.stack([structure()], atoms=9, edges=99), ValueError, "got 1 and 0 too many"),
        (lambda: Structures.stack([X]), TypeError, "structures: expected flashcliff.atoms.Structures, got Tensor"),
        (lambda: make()(X), TypeError, "structures: expected flashcliff.atoms.Structures, got Tensor"),
        (lambda: derivatives(make(), X), TypeError, "structures: expected flashcliff.atoms.Structures, got Tensor"),
        (lambda: derivatives(lambda s: torch.zeros(1), structure()), ValueError, "energy: expected energies that PyTorch can"),
        (lambda: nn.Potential(6, 1.0), TypeError, "numbers: expected atomic numbers as an iterable, got 6"),
        (lambda: derivatives(lambda s: 1.0, structure()), TypeError, "gives a tensor, got float"),
        (lambda: derivatives(lambda s: s.positions.sum(), structure()), ValueError, r"expected \[1\] energies"),
        (lambda: neighbours(X.long(), 1.0), TypeError, "floating-point numbers, got torch.int64"),
        (lambda: neighbours(X / 0, 1.0), ValueError, "expected finite numbers"),
        (lambda: neighbours(X, -1.0), ValueError, "cutoff: expected"),
        (lambda: neighbours(X, 1.0, pbc=True), ValueError, "independent lattice vectors"),
        (lambda: neighbours(X, 1.0, pbc=(True, False)), ValueError, "one boolean or three"),
        (lambda: neighbours(X, 1.0, torch.eye(2)), ValueError, r"cell: expected \[3, 3\]"),
    ],
    ids=range(37),
)  # fmt: skip
def test_wrong_calls_are_errors(call, error, says):
    with pytest.raises(error, match=says):
        call()


def test_energies_are_those_of_rust():
    """`energies_are_those_of_the_python_package` in `tests/suite/potential.rs` of flashcliff-network has the same numbers."""
    own = make_of_rust()
    sites = 1.1 * torch.sin(0.5 + 2.3 * torch.arange(27, **F64)).view(9, 3)
    sites[8] = torch.tensor([9.0, 0.3, 0.1])
    # Sites 4 and 5 are translations, site 3 is none.
    cell = torch.stack([sites[4], sites[5], torch.tensor([0.0, 0.0, 9.0], **F64)])
    edges = [(0, 1, 3), (1, 0, 3), (0, 2, 4), (2, 0, 5), (2, 2, 4), (1, 2, 3), (0, 1, 5)]
    shifts = torch.tensor([[image == 4, image == 5, 0] for *_, image in edges]).long()
    ends = torch.tensor([(sender, receiver) for receiver, sender, _ in edges]).T
    one = Structures(sites[:3], torch.tensor([0, 1, 0]), ends, shifts, cell[None])
    ends = torch.tensor([[1, 0, 1, 2], [0, 1, 2, 0]])
    two = Structures(sites[6:], torch.tensor([0, 1, 0]), ends)
    found = own(Structures.stack([one, two]))
    expected = torch.tensor([-0.8257161666726116, -0.05067131252407376], **F64)
    torch.testing.assert_close(found.detach(), expected, rtol=0, atol=1e-11)


def make_of_rust():
    """A potential whose parameters are sines, in the order of their names."""
    own = nn.Potential([1, 8], 2.5, channels=3, layers=2, hidden=5, neighbours=3.0, **F64)
    names = sorted(name for name, _ in own.named_parameters())
    with torch.no_grad():
        for name, parameter in own.named_parameters():
            at = torch.arange(parameter.numel(), **F64)
            values = 0.9 * torch.sin(1 + names.index(name) + 0.7 * at)
            parameter.copy_(values.view_as(parameter))
    own.scale.fill_(1.7)
    return own
