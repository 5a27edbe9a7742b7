"""Wrong structures of atoms, and wrong data for their potential."""

from functools import partial

import numpy as np
import torch
from misuse import refused, right

from flashcliff import nn
from flashcliff.atoms import Structures, derivatives, neighbours

POSITIONS = torch.tensor([[0.0, 0, 0], [0, 0, 1], [0, 2, 0]])
GIVEN = {"positions": POSITIONS, "species": torch.tensor([0, 1, 0]), "edge_index": torch.tensor([[0, 1], [1, 0]])}
ONE = Structures(**GIVEN)
OTHER = Structures(**{**GIVEN, "positions": POSITIONS.double()})
POTENTIAL = nn.Potential([1, 8], 4.0, channels=2, hidden=4)


def structures(**changed):
    return partial(Structures, **{**GIVEN, **changed})


def near(**changed):
    return partial(neighbours, **{"positions": POSITIONS, "cutoff": 1.5, **changed})


TENSOR = ": expected a torch.Tensor, got "

ROWS = [
    refused("species as a list", structures(species=[0, 1, 0]), TypeError, "species" + TENSOR + "list"),
    refused("species as an array", structures(species=np.array([0, 1, 0])), TypeError, "species" + TENSOR + "ndarray"),
    refused("no species", structures(species=None), TypeError, "species" + TENSOR + "None"),
    refused("booleans as species", structures(species=torch.tensor([True, False, True])), TypeError, "species: expected integers, got torch.bool"),
    refused("shifts as a list", structures(shifts=[[0, 0, 0]] * 2), TypeError, "shifts" + TENSOR + "list"),
    refused("shifts as an array", structures(shifts=np.zeros((2, 3))), TypeError, "shifts" + TENSOR + "ndarray"),
    refused("a cell as an array", structures(cell=np.eye(3)[None]), TypeError, "cell" + TENSOR + "ndarray"),
    refused("a batch as a list", structures(batch=[0, 0, 0]), TypeError, "batch" + TENSOR + "list"),
    refused("numbers as a batch", structures(batch=torch.zeros(3)), TypeError, "batch: expected integers, got torch.float32"),
    refused("structures below zero", structures(count=-1), ValueError, "count: expected at least 0, got -1"),
    right("species of 8 bits", structures(species=GIVEN["species"].to(torch.uint8)), lambda s: s.species.dtype == torch.int64),
    # Batches
    refused("batches of two types", partial(Structures.stack, [ONE, OTHER]), TypeError, "stack: expected batches of one element type, got torch.float32 and torch.float64; call"),
    refused("batches of two types that are filled", partial(Structures.stack, [OTHER, ONE], atoms=9, edges=9), TypeError, "got torch.float64 and torch.float32"),
    refused("a structure that is not in a list", partial(Structures.stack, ONE), TypeError, "stack: expected batches of structures as a sequence"),
    refused("sizes of a batch as strings", partial(Structures.stack, [ONE], atoms="9", edges="9"), TypeError, "atoms: expected an integer, got '9'"),
    refused("half an edge", partial(Structures.stack, [ONE], atoms=9, edges=9.5), TypeError, "edges: expected an integer, got 9.5"),
    refused("atoms without edges", partial(Structures.stack, [ONE], atoms=9), ValueError, "expected both `atoms` and `edges`, or none of them, got 9 and None"),
    right("a generator of batches", lambda: Structures.stack(own for own in (ONE, ONE)), lambda s: s.count == 2),
    refused("structures of 16 bits", partial(ONE.to, dtype=torch.float16), TypeError, "dtype: expected torch.float32 or torch.float64, got torch.float16"),
    refused("structures of integers", partial(ONE.to, "cpu", torch.int64), TypeError, "dtype: expected torch.float32 or torch.float64"),
    refused("other positions of another type", partial(ONE.replaced, positions=POSITIONS.double()), TypeError, "positions: expected torch.float32, as the structures are, got torch.float64"),
    refused("other positions as a list", partial(ONE.replaced, positions=POSITIONS.tolist()), TypeError, "positions" + TENSOR + "list"),
    refused("a strain as a number", partial(ONE.replaced, strain=0.0), TypeError, "strain" + TENSOR + "0.0"),
    # Neighbours
    refused("a cell of neighbours as an array", near(cell=np.eye(3)), TypeError, "cell" + TENSOR + "ndarray"),
    refused("nothing as pbc", near(cell=torch.eye(3), pbc=None), TypeError, "pbc: expected one boolean or three, got None"),
    refused("a number as pbc", near(cell=torch.eye(3), pbc=1), TypeError, "pbc: expected one boolean or three, got 1"),
    # The potential
    refused("a number as an energy", partial(derivatives, 5, ONE), TypeError, "energy: expected a function of structures, got 5"),
    refused("a potential of a list", partial(POTENTIAL, [ONE]), TypeError, "structures: expected flashcliff.atoms.Structures, got list"),
    refused("a potential of positions", partial(POTENTIAL, POSITIONS), TypeError, "structures: expected flashcliff.atoms.Structures, got Tensor"),
    refused("a symbol as an atomic number", partial(POTENTIAL.species_of, ["H"]), TypeError, "numbers: expected an integer, got 'H'"),
    refused("a fraction as an atomic number", partial(POTENTIAL.species_of, [1.7]), TypeError, "numbers: expected an integer, got 1.7"),
    refused("one atomic number", partial(POTENTIAL.species_of, 1), TypeError, "numbers: expected atomic numbers as an iterable, got 1"),
    right("atomic numbers of NumPy", partial(POTENTIAL.species_of, np.array([8, 1])), lambda s: s.tolist() == [1, 0]),
    refused("data of structures that are none", partial(POTENTIAL.standardise, 5, torch.zeros(1)), TypeError, "structures: expected flashcliff.atoms.Structures, got int"),
    refused("energies as a list", partial(POTENTIAL.standardise, ONE, [0.0]), TypeError, "energies: expected a tensor of floating-point numbers, got list"),
    refused("energies of other structures", partial(POTENTIAL.standardise, ONE, torch.zeros(2)), ValueError, r"energies: expected \[1\], got \[2\]"),
    refused("energies that are not numbers", partial(POTENTIAL.standardise, ONE, torch.tensor([torch.nan])), ValueError, "energies: expected finite numbers"),
    refused("forces of other atoms", partial(POTENTIAL.standardise, ONE, torch.zeros(1), torch.zeros(2, 3)), ValueError, r"forces: expected \[3, 3\], got \[2, 3\]"),
]  # fmt: skip
