"""A calculator of ASE."""

from __future__ import annotations

from typing import Any

import torch

from .._ops import checks
from ..nn.potential import Potential
from ._derivatives import derivatives
from ._neighbours import check_periodic, package
from ._structures import Structures

try:
    from ase.calculators import calculator as _ase
except ImportError:
    _ase = None  # type: ignore[assignment]

# Without ASE the constructor raises an error that says what to install.
_Calculator: Any = object if _ase is None else _ase.Calculator
_CHANGES = [] if _ase is None else _ase.all_changes


class Calculator(_Calculator):  # type: ignore[misc]
    """A calculator of ASE for a :class:`flashcliff.nn.Potential`: energies, forces and stress, in eV, eV/Angstrom and eV/Angstrom^3.

    Neighbours are searched within the cut-off and a skin, and again when an atom has moved by half of the skin, or the cell, the
    elements or the model have changed. Results do not depend on the skin but for the order of sums. ASE keeps results until atoms
    change, so call ``reset()`` after a change of the model.

    Args:
        model: the potential. It computes in its own element type; simulations conserve energy best in float64.
        skin: the distance beyond the cut-off within which neighbours are searched.
        options: the options of ASE's calculators.

    Raises:
        MissingPackageError: ASE or vesin is not installed.
        ValueError: atoms have elements that the potential does not know.
    """

    implemented_properties = ["energy", "free_energy", "forces", "stress"]

    def __init__(self, model: Potential, skin: float = 0.5, **options: Any) -> None:
        package("ase", "flashcliff.atoms.Calculator")
        super().__init__(**options)
        self.model = model
        self.skin = checks.epsilon("skin", skin)
        self.searches = 0
        """How often neighbours were searched."""
        self._kept: tuple[Any, Structures, torch.Tensor] | None = None

    def calculate(
        self, atoms: Any = None, properties: Any = ("energy",), system_changes: Any = _CHANGES
    ) -> None:
        """The properties of atoms, as ASE asks for them."""
        super().calculate(atoms, properties, system_changes)
        with_stress = "stress" in properties
        if with_stress and self.atoms.cell.rank < 3:
            raise _ase.PropertyNotImplementedError("stress: expected a cell of three lattice vectors")
        found = derivatives(self.model, self._structures(self.atoms), stress=with_stress)
        energy = float(found.energies)
        self.results = {
            "energy": energy,
            "free_energy": energy,
            "forces": found.forces.double().cpu().numpy(),
        }
        if found.stress is not None:
            tensor = found.stress[0].double().cpu().numpy()
            self.results["stress"] = tensor[[0, 1, 2, 1, 0, 0], [0, 1, 2, 2, 2, 1]]

    def _structures(self, atoms: Any) -> Structures:
        """The atoms, with edges that still serve or new ones."""
        model = self.model
        parameter = next(model.parameters())
        places = torch.from_numpy(atoms.positions.copy())
        # Models may be exchanged or moved: each has a cut-off, and species are places among its elements.
        of_model = model.cutoff, self.skin, model.numbers, parameter.dtype, parameter.device
        of_atoms = atoms.numbers.tobytes(), atoms.cell.array.tobytes(), atoms.pbc.tobytes()
        key = *of_atoms, *of_model
        if self._kept is not None and self._kept[0] == key:
            _, structures, start = self._kept
            if not len(places) or (places - start).norm(dim=-1).max() < self.skin / 2:
                return structures.replaced(positions=places.to(parameter))
        self.searches += 1
        structures = Structures.of(
            places,
            model.species_of(atoms.numbers),
            model.cutoff + self.skin,
            torch.from_numpy(atoms.cell.array.copy()),
            check_periodic(map(bool, atoms.pbc)),
        ).to(parameter.device, parameter.dtype)
        self._kept = key, structures, places
        return structures
