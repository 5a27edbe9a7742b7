"""Data of Stillinger and Weber's silicon in `examples/potential.py`: checksums of seeds, and the potential itself."""

import hashlib

import numpy as np
import pytest
import torch
from test_examples import load

pytest.importorskip("vesin", reason="vesin is not installed")

silicon = load("potential")

# Of the bits of positions and cells, and of energies and forces in 1e-4 eV and eV/Angstrom.
CHECKSUMS = {
    0: ("58c6fbebc82b92e1", "ecfa0540d22b5dc2"),
    1: ("b21b371c12d1d407", "d7e59f9f64091c45"),
    1_000_000: ("0fc4566a7303bddc", "1e1837be559f44c5"),
}
COUNT = 3


def checksum(*arrays):
    """Of numbers of 8 bytes, the lowest byte first."""
    digest = hashlib.sha256()
    for array in arrays:
        digest.update(np.ascontiguousarray(array).astype(array.dtype.newbyteorder("<")).tobytes())
    return digest.hexdigest()[:16]


@pytest.mark.parametrize("seed", CHECKSUMS)
def test_the_data_of_a_seed_never_change(seed):
    """Positions have the same bits on every machine: they are sums and products of random bits, one by one. Exponentials are not, so
    energies and forces are rounded; none is so near to a half that an error of 1e-9, a thousand times the rounding, would change it."""
    positions, cells = silicon.draw(seed, COUNT)
    drawn = checksum(positions, cells)
    _, energies, forces = silicon.data(seed, COUNT)
    values = 1e4 * torch.cat([energies, forces.flatten()]).numpy()
    assert (np.abs(np.abs(values - np.floor(values)) - 0.5) > 1e-5).all()
    assert (drawn, checksum(np.rint(values).astype(np.int64))) == CHECKSUMS[seed]


def test_every_number_counts_in_the_checksum():
    positions, cells = silicon.draw(0, COUNT)
    sums = {checksum(positions, cells), checksum(cells, positions), checksum(np.nextafter(positions, 9), cells)}
    assert len(sums) == 3


def test_draws_are_uniform_and_differ():
    values = silicon.uniform(np.random.PCG64(3), 20_000)
    assert -1 <= values.min() < -0.999 and 0.999 < values.max() < 1
    assert abs(values.mean()) < 0.02 and abs(values.var() - 1 / 3) < 0.01
    one, two = (silicon.draw(seed, 1)[0] for seed in (0, 1))
    assert np.abs(one - two).max() > 0.01
    # Longer draws do not begin as shorter ones, but seeds of training and of tests are far apart.
    assert one.shape == (1, 16, 3)


def test_the_crystal_has_the_published_energy():
    """Two EPSILON for each atom, at the lattice constant of silicon, where nothing pulls."""
    places, cell = silicon.crystal((2, 1, 1))
    _, energy, forces = silicon.labelled(places, cell)
    assert abs(energy / 16 + 2 * silicon.EPSILON) < 1e-5 and forces.abs().max() < 1e-12
    lattices = np.linspace(5.42, 5.44, 41)
    energies = [silicon.labelled(*silicon.crystal((1, 1, 1), own))[1] for own in lattices]
    assert abs(lattices[np.argmin(energies)] - 5.431) < 1e-3


def by_pairs_and_triplets(positions, cell):
    """The energy as it is published, pair by pair and triplet by triplet, with images up to two cells away."""
    shifts = np.stack(np.meshgrid(*[np.arange(-2, 3)] * 3), -1).reshape(-1, 3) @ cell
    energy = 0.0
    for place in positions:
        near = (positions[None] + shifts[:, None]).reshape(-1, 3) - place
        lengths = np.linalg.norm(near, axis=1)
        near = near[(lengths > 1e-9) & (lengths < silicon.CUTOFF)] / silicon.SIGMA
        for at, one in enumerate(near):
            r = np.linalg.norm(one)
            pair = silicon.A * (silicon.B * r**-4 - 1) * np.exp(1 / (r - 1.8))
            energy += silicon.EPSILON * pair / 2
            for two in near[:at]:
                s = np.linalg.norm(two)
                bend = (one @ two / (r * s) + 1 / 3) ** 2
                energy += silicon.EPSILON * 21 * bend * np.exp(1.2 / (r - 1.8) + 1.2 / (s - 1.8))
    return energy


def test_energies_are_those_of_pairs_and_triplets():
    for own in zip(*silicon.draw(5, 2)):
        assert abs(silicon.labelled(*own)[1] - by_pairs_and_triplets(*own)) < 1e-10


def test_forces_are_differences_of_the_energy():
    positions, cell = (own[0] for own in silicon.draw(5, 1))
    _, _, forces = silicon.labelled(positions, cell)
    assert forces.sum(0).abs().max() < 1e-12
    for at in ((0, 0), (7, 1), (12, 2)):
        step = np.zeros_like(positions)
        step[at] = 1e-5
        ends = [silicon.labelled(positions + sign * step, cell)[1] for sign in (1, -1)]
        assert abs((ends[0] - ends[1]) / 2e-5 + forces[at].item()) < 1e-7
