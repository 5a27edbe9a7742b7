"""Potentials on CUDA: as on the CPU, with bits that repeat, without waiting, and within CUDA graphs."""

import copy

import pytest
import torch
from nn_common import difference as off
from test_potential import crystal, make, structure

import flashcliff
from flashcliff.atoms import Structures, derivatives

pytestmark = pytest.mark.cuda


def batch(seed=0, atoms=40, edges=2000):
    many = [structure(9, seed + 1), crystal(3, seed + 2), structure(12, seed + 3)]
    return Structures.stack(many, atoms=atoms, edges=edges)


def on_gpu(seed=0, dtype=torch.float32):
    return batch(seed).to("cuda", dtype)


def results(model, given):
    found = derivatives(model, given, stress=True, create_graph=True)
    loss = found.energies.square().sum() + found.forces.square().sum() + found.stress[1].square().sum()
    grads = torch.autograd.grad(loss, model.parameters(), materialize_grads=True)
    return [own.detach().cpu() for own in (found.energies, found.forces, found.stress[1], *grads)]


def test_results_and_gradients_are_those_on_the_cpu():
    model, given = make(), batch()
    wanted = results(model, given)
    got, again = (results(model.cuda(), given.to("cuda")) for _ in range(2))
    for own, repeated, want in zip(got, again, wanted, strict=True):
        assert torch.equal(own, repeated)
        assert off(own, want) < 1e-9


def test_forces_have_no_curl_in_float32():
    model, given = make(dtype=torch.float32).cuda(), crystal().to("cuda", torch.float32)

    def forces(x):
        return derivatives(model, given.replaced(positions=x), create_graph=True).forces

    x = given.positions.clone().requires_grad_()
    rows = [torch.autograd.grad(own, x, retain_graph=True)[0].flatten() for own in forces(x).flatten()]
    jacobian = torch.stack(rows)
    assert (jacobian - jacobian.T).abs().max() < 1e-5 * jacobian.abs().max()


def test_nothing_waits_for_the_gpu():
    model, given = make(dtype=torch.float32).cuda(), on_gpu()
    results(model, given)
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("error")
    try:
        found = derivatives(model, given, stress=True, create_graph=True)
        (found.energies.sum() + found.forces.square().sum()).backward()
    finally:
        torch.cuda.set_sync_debug_mode(before)


def trainer(model, optimiser):
    def step(given, energies, forces):
        optimiser.zero_grad()
        found = derivatives(model, given, create_graph=True)
        loss = (found.energies - energies)[:-1].square().mean() + (found.forces - forces).square().mean()
        loss.backward()
        optimiser.step()
        return loss, found.forces

    return step


def test_captured_steps_are_eager_ones():
    """Batches of other structures have one graph, because they are filled up to one shape."""
    model = make(dtype=torch.float32).cuda()
    twin = copy.deepcopy(model)
    eager, recorded = (
        trainer(own, flashcliff.optim.AdamW(own.parameters(), lr=1e-3)) for own in (model, twin)
    )
    recorded = flashcliff.capture(recorded, modules=twin, fallback="error")
    for at in range(8):
        given = on_gpu(at)
        torch.manual_seed(at)
        labels = torch.randn(given.count, device="cuda"), torch.randn_like(given.positions)
        for got, want in zip(recorded(given, *labels), eager(given, *labels)):
            assert torch.equal(got, want)
    assert recorded.graph_count == 1
    for got, want in zip(twin.parameters(), model.parameters()):
        assert torch.equal(got, want)


def test_captured_forces_follow_the_atoms():
    model, given = make(dtype=torch.float32).cuda(), crystal().to("cuda", torch.float32)

    @flashcliff.capture(modules=model, fallback="error")
    def forces(x):
        return derivatives(model, given.replaced(positions=x)).forces

    for at in range(6):
        x = given.positions + 0.01 * at
        assert torch.equal(forces(x), derivatives(model, given.replaced(positions=x)).forces)
    assert forces.graph_count == 1
