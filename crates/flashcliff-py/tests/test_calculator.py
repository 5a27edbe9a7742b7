"""The calculator of ASE: its properties, its neighbours, and simulations by ASE that conserve energy."""

import copy

import numpy as np
import pytest
import torch
from nn_common import disturb

from flashcliff import nn, testing
from flashcliff.atoms import Calculator, Structures, derivatives

ase = pytest.importorskip("ase", reason="ase is not installed")
pytest.importorskip("vesin", reason="vesin is not installed")

from ase import units  # noqa: E402
from ase.build import bulk  # noqa: E402
from ase.calculators.calculator import PropertyNotImplementedError  # noqa: E402
from ase.calculators.fd import calculate_numerical_forces, calculate_numerical_stress  # noqa: E402
from ase.md.verlet import VelocityVerlet  # noqa: E402

CUTOFF = 3.8


def model(dtype=torch.float64):
    torch.manual_seed(0)
    found = nn.Potential([14, 6], CUTOFF, 4, 2, hidden=8, neighbours=8.0, dtype=torch.float64)
    return disturb(found).to(dtype)


def crystal(seed=0, repeats=(2, 1, 1)):
    atoms = bulk("Si", cubic=True) * repeats
    atoms.numbers[::3] = 6
    atoms.rattle(0.1, seed=seed)
    return atoms


def structures(atoms, potential):
    cell = torch.from_numpy(atoms.cell.array)
    species = potential.species_of(atoms.numbers)
    return Structures.of(torch.from_numpy(atoms.positions), species, CUTOFF, cell, tuple(map(bool, atoms.pbc)))


def test_properties_are_those_of_the_potential():
    potential, atoms = model(), crystal()
    atoms.calc = Calculator(potential)
    want = derivatives(potential, structures(atoms, potential), stress=True)
    assert abs(atoms.get_potential_energy() - want.energies.item()) < 1e-10
    assert np.abs(atoms.get_forces() - want.forces.numpy()).max() < 1e-11
    assert np.abs(atoms.get_stress(voigt=False) - want.stress[0].numpy()).max() < 1e-12
    # Forces and stress by differences, as ASE computes them.
    numerical = calculate_numerical_forces(atoms, eps=1e-4)
    assert np.abs(numerical - atoms.get_forces()).max() < 1e-5 * np.abs(numerical).max()
    numerical = calculate_numerical_stress(atoms, eps=1e-5)
    assert np.abs(numerical - atoms.get_stress()).max() < 1e-6 * np.abs(numerical).max()


def test_neighbours_are_searched_when_they_must_be():
    potential, atoms = model(), crystal()
    atoms.calc = Calculator(potential, skin=0.4)

    def check(searches):
        energy, forces = atoms.get_potential_energy(), atoms.get_forces()
        want = derivatives(potential, structures(atoms, potential))
        assert abs(energy - want.energies.item()) < 1e-10
        assert np.abs(forces - want.forces.numpy()).max() < 1e-11
        assert atoms.calc.searches == searches

    check(1)
    atoms.rattle(0.02, seed=1)
    check(1)
    atoms.positions[3] += 0.3
    check(2)
    atoms.set_cell(atoms.cell.array * 1.01, scale_atoms=True)
    check(3)
    atoms.numbers[0] = 14
    check(4)
    atoms.pbc = (True, True, False)
    check(5)
    atoms.wrap()
    check(6)


def test_neighbours_are_searched_for_each_model():
    """A model has a cut-off, an order of elements and an element type."""
    atoms = crystal()
    atoms.calc = Calculator(model(torch.float32))
    atoms.get_potential_energy()
    wider = nn.Potential([6, 14], CUTOFF + 1, 4, 2, hidden=8, dtype=torch.float64)
    for potential in (model(), wider, copy.deepcopy(wider).float()):
        atoms.calc.model = potential
        atoms.calc.reset()
        fresh = atoms.copy()
        fresh.calc = Calculator(potential)
        assert atoms.get_potential_energy() == fresh.get_potential_energy()


def test_molecules_have_no_stress():
    atoms = crystal()
    atoms.pbc, atoms.cell = False, None
    atoms.calc = Calculator(model(torch.float32))
    assert atoms.get_forces().dtype == np.float64
    with pytest.raises(PropertyNotImplementedError, match="three lattice vectors"):
        atoms.get_stress()


def test_elements_that_are_not_known_are_errors():
    atoms = crystal()
    atoms.numbers[0] = 8
    atoms.calc = Calculator(model())
    with pytest.raises(ValueError, match=r"elements of the potential, \[14, 6\], got \[8\]"):
        atoms.get_potential_energy()


def drift(time_step, time=30.0):
    """The largest change of the whole energy an atom in a simulation in which neighbours are searched again, and the kinetic energy."""
    atoms = crystal()
    atoms.calc = Calculator(model(), skin=0.3)
    momenta = np.random.default_rng(1).normal(size=(len(atoms), 3)) * np.sqrt(atoms.get_masses()[:, None] * 0.05)
    atoms.set_momenta(momenta - momenta.mean(0))
    start, kinetic, energies = atoms.get_total_energy(), atoms.get_kinetic_energy(), []
    dynamics = VelocityVerlet(atoms, timestep=time_step * units.fs)
    dynamics.attach(lambda: energies.append(atoms.get_total_energy()))
    dynamics.run(round(time / time_step))
    return np.abs(np.array(energies) - start).max() / kinetic, atoms.calc.searches


def test_a_simulation_conserves_the_energy():
    """What is left of drift falls with the square of the time step."""
    (long, searches), (short, _) = drift(1.0), drift(0.5)
    assert searches > 1
    assert long < 1e-2 and 3.3 < long / short < 4.7


def test_a_calculator_passes_the_checks_of_conservation():
    potential, atoms = model(), crystal(repeats=(1, 1, 1))
    given = structures(atoms, potential)
    found = testing.check_conservation(lambda x: potential(given.replaced(positions=x)), given.positions)
    assert found.curl < 1e-12
