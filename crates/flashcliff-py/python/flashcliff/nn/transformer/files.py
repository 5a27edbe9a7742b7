"""Networks with their weights in files, for Rust and C."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

from torch import Tensor, nn

from ... import _core
from ..._ops import doors
from . import path as calls
from .described import (
    Description,
    MessageDescription,
    MessageVariant,
    Undescribed,
    Variant,
)
from .described.draft import Draft
from .described.function import TYPES
from .loaded import CoreNetwork

__all__ = ["save_network"]

_DRAFTS = Description, MessageDescription
_OF_SAMPLES = False, True, False
"""The axes of a mask in a file that have the length 1: that of heads."""


def save_network(module: nn.Module, path: str | os.PathLike[str], *, mask: bool = False) -> None:
    """Writes a network with its weights into one file, which opens in PyTorch by :func:`flashcliff.load_network`, in JAX by
    :func:`flashcliff.jax.load_network`, and without Python: in Rust by ``flashcliff_network::file``, in C by ``fc_network_load``.

    The module is one of these:

    - a :class:`~flashcliff.nn.transformer.GATransformer` or :class:`~flashcliff.nn.transformer.FrameTransformer`, a block, an attention,
      an MLP, or a linear or bilinear layer of :mod:`flashcliff.nn.transformer`;
    - the same of :mod:`flashcliff.compat.gatr` and :mod:`flashcliff.compat.lgatr`, such as ``GATr``, ``LGATr``, ``ConditionalLGATr``,
      ``LGATrSlim`` and ``ConditionalLGATrSlim``;
    - a network of messages on graphs, as said below;
    - what :func:`flashcliff.load_network` gave, whose file becomes the same again.

    The file has what the module computes for a batch of samples of as many items each. If your own class wraps such a module, save the
    module within, and do in the host what your class does around it.

    Inputs, of which a file has those that its network reads:

    ================ ======================================= ==================================================================
    name             shape                                   what
    ================ ======================================= ==================================================================
    ``tokens``       ``[rows, token]``                       an item in a row, samples one after another
    ``reference``    ``[rows]``                              the reference of joins for each item, such as
                                                             :func:`~flashcliff.nn.transformer.join_reference` of its sample
    ``extra``        ``[rows, token]``                       the channels ``reinsert_channels`` and ``reinsert_scalars``, in
                                                             their order, which queries and keys see again
    ``context``      ``[context rows, token]``               the items that cross-attention attends to
    ``frames``       ``[rows, dim * dim]``                   the frame of each item, row by row, of plain layers in local frames
    ``mask``         ``[samples, 1, items, items]``          with ``mask``: numbers that are added to the logits of self-attention,
                                                             minus infinity for what is not seen
    ``context_mask`` ``[samples, 1, items, context items]``  with ``mask``: the same for cross-attention
    ================ ======================================= ==================================================================

    Files of these networks have other inputs, and some have another output:

    - :class:`flashcliff.nn.models.Hulls`, ``Volumes`` and ``Regression``: the input ``points`` ``[rows, points, dim]``, and the output
      ``[1, rows, 1]``.
    - :class:`flashcliff.nn.models.NBody` and ``MVNBody``: the input ``bodies`` ``[nodes, 1, 7]``, of charge, position and velocity, and the
      output ``[3, nodes, 1]``.
    - :class:`flashcliff.nn.models.SimplicialHulls`: the inputs ``kinds`` ``[1, simplices, 3]`` and ``points`` ``[vertices, 1, dim]``, and
      the output ``[1, graphs, 1]``.
    - :class:`flashcliff.nn.EGCL`: the inputs ``nodes`` ``[blades, nodes, channels]``, and ``edge_scalars`` ``[1, edges, edge_scalars]`` and
      ``node_scalars`` ``[1, nodes, node_scalars]``, if it has such scalars.
    - :class:`flashcliff.nn.CEMLP`: the input ``x`` ``[blades, rows, in_channels]``.
    - :class:`flashcliff.nn.models.JetTagger`: the inputs ``momenta`` ``[nodes, 1, 4]`` and ``scalars`` ``[1, nodes, in_scalars]``, and the
      output ``[1, graphs, classes]``: the logits of jets without a mask.

    Runs are given the relations ``receivers`` and ``senders`` of edges, ``graphs`` of bodies, particles and simplices, and the relations
    of :meth:`flashcliff.graphs.Complexes.relations`, whose orders of corners are the rows of further sets.

    The output is ``output`` ``[rows, token]``. A token has the multivectors, blade by blade in the order of the algebra with channels
    innermost, then the scalars: for multivectors ``[blades, samples, items, channels]`` and scalars ``[samples, items, scalars]`` they are
    ``torch.cat((mv.movedim(0, -2).flatten(-2), s), -1).flatten(0, 1)``. Slim networks have vectors in the place of multivectors, as
    ``(t, x, y, z)``. Ragged batches and sequences are given to a run of the file.

    Parameters have the names, the shapes and the type of the state dict. Parameters of messages on graphs have no axes of one
    element, and parameters without elements are left out. The last maps of the gates of jets, ``psi_x.2`` and ``chi_x.2``, have the
    same numbers as ``[channels, grades * scalars]`` and ``[channels, grades]``. Dropout is left out, and it does not matter which
    parts are computed again in a backward pass, on which device parameters are, or whether the module is in training. Batch norms
    are an exception: a file has the norms of evaluation, whose running statistics are parameters of the file, so call
    ``module.eval()`` before a network with batch norms is saved. A file that is there is replaced as a whole.

    Args:
        module: the network.
        path: the file, by custom ``*.safetensors``.
        mask: whether attention has masks.

    Raises:
        UnsupportedError: the file would compute something else than the module. The message says why: a class without a description,
            hooks, parametrizations, an option that no step has, batch norms in training.
        TypeError: parameters are not all of float32, or all of float64.
        ValueError: a mask without attention; a parameter without data.
        OSError: the file cannot be written.

    >>> import flashcliff, tempfile
    >>> from flashcliff.nn.transformer import GATransformer
    >>> net = GATransformer(flashcliff.Algebra(3, 0, 1), 1, 1, 8, hidden_scalars=16, blocks=2)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     flashcliff.save_network(net, f"{folder}/network.safetensors")
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {module!r}")
    what = f"save_network of {type(module).__name__}"
    if isinstance(module, CoreNetwork):
        if mask:
            raise ValueError(f"{what}: expected mask=False, because its network has no attention, or that of the file")
        _save(path, what, *module.stored())
        return
    if type(module).__name__ == "OptimizedModule":
        raise _core.UnsupportedError(
            f"{what}: it is compiled; save the module that torch.compile was given, its `_orig_mod`"
        )
    variant = _variant(module, what, mask)
    try:
        why = calls.why_other(module)
        if why is not None:
            raise Undescribed(why)
        description, output = _described(module, variant)
    except Undescribed as error:
        raise _core.UnsupportedError(f"{what}: {error}") from None
    if mask and not {"mask", "context_mask"}.intersection(description.inputs):
        raise ValueError(f"{what}: expected mask=False, because there is no attention")
    parameters = [parts[name] for parts, name in description.slots]
    _save(path, what, description.network.function(output), parameters)


def _save(
    path: str | os.PathLike[str],
    what: str,
    function: _core.NetworkFunction,
    parameters: Sequence[Tensor],
) -> None:
    dtype, weights = _weights(parameters, what)
    function.save(os.fspath(path), dtype, [weight.data_ptr() for weight in weights])


def _variant(module: Any, what: str, mask: bool) -> Variant | MessageVariant:
    """The kind of call that a file is for."""
    made_for = getattr(module, "variant", None)
    if made_for is None or not any(hasattr(module, own.method) for own in _DRAFTS):
        raise _core.UnsupportedError(
            f"{what}: expected a network, block or layer of flashcliff.nn.transformer, an EGCL or CEMLP, or a model of flashcliff.nn.models, that knows its channels; "
            "of a class around one, save the module within; of another package, save what flashcliff.accelerate makes of it"
        )
    variant: Variant | MessageVariant = made_for()
    if not mask or isinstance(variant, MessageVariant):
        return variant
    return variant._replace(
        mask=_OF_SAMPLES, context_mask=None if variant.context is None else _OF_SAMPLES
    )


def _described(module: Any, variant: Any) -> tuple[Draft, int]:
    """A network that computes what a module does, and its output."""
    if isinstance(variant, Variant) and variant.extra is not None and not variant.extra[0]:
        raise Undescribed("queries and keys see scalars again, and no multivectors")
    description = variant.draft(getattr(module, "geometry", None), module)
    output = description.call(module, description.here).value
    if description.dtype is not None:
        raise Undescribed(f"attention has features of {description.dtype}")
    if output == description.here.value:
        raise Undescribed("it leaves items as they are")
    return description, output


def _weights(found: Sequence[Tensor], what: str) -> tuple[str, list[Tensor]]:
    """The type of the parameters, and these in their order on the CPU."""
    types = {p.dtype for p in found}
    if len(types) > 1 or not types <= TYPES.keys() or not doors.PLAIN.issuperset(map(type, found)):
        names = ", ".join(sorted(map(str, types)))
        raise TypeError(
            f"{what}: expected plain parameters, all of torch.float32 or all of torch.float64, got {names}"
        )
    if any(p.is_meta for p in found):
        raise ValueError(f"{what}: expected parameters with data, got some on the device meta")
    dtype = next((TYPES[of] for of in types), "f32")
    return dtype, [p.detach().cpu().contiguous() for p in found]
