"""Which way the blocks, the linear layers and the layers of messages on graphs of a network run, and why."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from torch import nn

from . import path
from .described import MessageVariant, Networked, known_of
from .linear import EquiLinear
from .norm import WithNorms

__all__ = ["Paths", "explain"]


@dataclass
class Paths:
    """The result of :func:`explain`.

    Example:
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import Block, explain
        >>> list(explain(Block(Algebra(3, 0, 1), 4, 8)).blocks)
        ['']
    """

    blocks: dict[str, str] = field(default_factory=dict)
    """For each block, and each network, layer and perceptron of messages, by its name in the module, the way in which it runs."""
    layers: dict[str, str] = field(default_factory=dict)
    """The reason for each equivariant linear layer that calls the modules within it, or is itself another's work."""

    def __str__(self) -> str:
        lines = [f"{name or 'the module'}: {way}" for name, way in self.blocks.items()]
        lines += [f"{name or 'the module'}: calls its modules: {why}" for name, why in self.layers.items()]
        return "\n".join(lines) or "neither blocks nor layers that call their modules"


def explain(module: nn.Module) -> Paths:
    """Says which way the blocks and linear layers of a module run, and why.

    Functions of ours stand for the calls of inner modules only while these are as they were made. Hooks,
    parametrizations, another class or a custom ``forward`` make a block call its layers, or a layer its linear maps:
    the results then come from these calls, and take longer.

    Args:
        module: any module; a network, a block or a layer of :mod:`flashcliff.nn.transformer` or of
            :mod:`flashcliff.compat`, slim ones too; :class:`flashcliff.nn.CEMLP`, :class:`flashcliff.nn.EGCL`,
            :class:`flashcliff.nn.models.NBody` and :class:`flashcliff.nn.models.SimplicialHulls`.

    Returns:
        The ways of blocks and the reasons of layers, by their names. It prints as one line for each.

    >>> import flashcliff
    >>> from flashcliff.nn.transformer import GATransformer
    >>> net = GATransformer(flashcliff.Algebra(1, 3, 0), 1, 1, 4, blocks=1, attention={"heads": 2})
    >>> _ = net.linear_in.register_forward_hook(lambda *_: None)
    >>> print(explain(net))
    blocks.0: runs as one function
    linear_in: calls its modules: it has hooks (forward_hooks)
    """
    if not isinstance(module, nn.Module):
        raise TypeError(f"module: expected a torch.nn.Module, got {module!r}")
    found = Paths()
    for name, inner in module.named_modules():
        if isinstance(inner, WithNorms):
            found.blocks[name] = _way(inner)
        elif isinstance(inner, Networked) and inner.variants is MessageVariant:
            found.blocks[name] = _way(inner)
        elif isinstance(inner, EquiLinear):
            why = path.why_called(inner, type(inner) in path.known())
            why = why or known_of(inner).why(inner, inner.geometry, inner.variant)
            if why is not None:
                found.layers[name] = why
    return found


def _way(block: Any) -> str:
    why = known_of(block).why(block, getattr(block, "geometry", None), block.variant)
    return "runs as one function" if why is None else f"calls its layers: {why}"
