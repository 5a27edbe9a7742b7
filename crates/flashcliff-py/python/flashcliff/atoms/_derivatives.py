"""Forces and stress as derivatives of an energy."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import Tensor

from .._ops import checks
from ..nn.transformer.geometry import without_autocast
from ._structures import Structures, check_structures


class Derivatives(NamedTuple):
    """The result of :func:`derivatives`."""

    energies: Tensor
    """``[structures]``"""
    forces: Tensor
    """``[atoms, 3]``"""
    stress: Tensor | None
    """``[structures, 3, 3]``, if it was asked for."""


def derivatives(
    energy: Callable[[Structures], Tensor],
    structures: Structures,
    *,
    stress: bool = False,
    create_graph: bool = False,
) -> Derivatives:
    """Energies with their forces, and on request the stress, by automatic differentiation.

    Forces are ``-dE/dpositions``, so they conserve the energy and have no curl. Stress is ``dE/dstrain / volume`` for a strain ``e`` that
    takes each vector ``v`` to ``v + v e``: positive where the energy rises as the cell grows, as in ASE. It is symmetric if the energy
    does not change with rotations. Without a cell it is not a number.

    Args:
        energy: a function of structures that gives ``[structures]`` energies by their ``vectors()``, such as
            :class:`flashcliff.nn.Potential`.
        structures: the structures. Gradients flow to their positions if these require them and ``create_graph`` is set.
        stress: whether the stress is computed too.
        create_graph: whether results can be differentiated again, to train on them.

    Returns:
        Energies, forces and stress. Without ``create_graph`` they are detached.

    Raises:
        TypeError: ``energy`` gives no tensor, or ``structures`` are none.
        ValueError: ``energy`` gives another shape, or something that PyTorch cannot differentiate.
    """
    stress, create_graph = checks.flag("stress", stress), checks.flag("create_graph", create_graph)
    check_structures(structures)
    if not callable(energy):
        raise TypeError(f"energy: expected a function of structures, got {energy!r}")
    # Tensors that are made in inference mode cannot be differentiated.
    infers = torch.is_inference_mode_enabled()
    with torch.inference_mode(False) if infers else contextlib.nullcontext(), torch.enable_grad():
        positions = structures.positions
        if not (create_graph and positions.requires_grad):
            positions = positions.detach()
            positions = positions.clone() if positions.is_inference() else positions
            positions.requires_grad_()
        strain = (
            structures.cell.new_zeros(structures.cell.shape).requires_grad_() if stress else None
        )
        energies = energy(structures.replaced(positions=positions, strain=strain))
        _check(energies, structures.count)
        by = [positions] if strain is None else [positions, strain]
        # A backward pass has the types of the forward pass. Under autocast it would round to 16 bits what that had left alone.
        with without_autocast(positions):
            # An energy without neighbours does not depend on positions.
            found = torch.autograd.grad(
                energies.sum(), by, create_graph=create_graph, materialize_grads=True
            )
        tensor = _by_volume(found[1], structures.cell) if stress else None
    results = energies, -found[0], tensor
    if not create_graph:
        results = tuple(None if own is None else own.detach() for own in results)  # type: ignore[assignment]
    return Derivatives(*results)


def _check(energies: object, count: int) -> None:
    if not isinstance(energies, Tensor):
        raise TypeError(
            f"energy: expected a function that gives a tensor, got {type(energies).__name__}"
        )
    if tuple(energies.shape) != (count,):
        raise ValueError(f"energy: expected [{count}] energies, got {list(energies.shape)}")
    if not energies.requires_grad:
        raise ValueError(
            "energy: expected energies that PyTorch can differentiate by positions, got some that do not depend on `vectors()`, or whose "
            "graph was cut, as by `detach()` or `torch.no_grad()`"
        )


def _by_volume(of_strain: Tensor, cell: Tensor) -> Tensor:
    """The derivative by the strain over the volume. Without a cell it is not a number, and no gradient comes through it: losses
    on the stress of other structures stay finite."""
    volume = _volumes(cell)
    is_cell = volume > 0
    return (of_strain / volume.where(is_cell, 1)).where(is_cell, torch.nan)


def _volumes(cell: Tensor) -> Tensor:
    """``[structures, 1, 1]``. A determinant by PyTorch would call a solver, which not every GPU can capture."""
    a, b, c = cell.unbind(1)
    return (a * torch.linalg.cross(b, c)).sum(-1).abs()[:, None, None]
