"""Atoms in ragged batches: neighbours within a cut-off, forces and stress as derivatives of an energy, an ASE calculator.

- :class:`Structures`: positions, species, cells and the edges between neighbours of many structures, as one batch.
- :func:`neighbours`: the edges of one structure, by vesin.
- :func:`derivatives`: energies with forces and stress, which can be trained.
- :class:`Calculator`: a calculator of ASE.

:class:`flashcliff.nn.Potential` is an energy of such structures; any function from structures to energies is one, too. Lengths and energies
have the units of the data; the units of :class:`Calculator` are Angstrom and electronvolt.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import _torch as _torch
from ._derivatives import Derivatives, derivatives
from ._neighbours import neighbours
from ._structures import Structures

if TYPE_CHECKING:
    from ._calculator import Calculator as Calculator

__all__ = ["Calculator", "Derivatives", "Structures", "derivatives", "neighbours"]


def __getattr__(name: str) -> object:
    if name == "Calculator":
        # ASE is loaded when it is asked for.
        from ._calculator import Calculator

        return Calculator
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
