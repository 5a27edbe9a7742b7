"""Goes through a model and replaces what has a counterpart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from . import cgenn, flash_clifford
from .adopt import NotReplaced, adopt
from .transformers import NETWORKS


@dataclass
class Acceleration:
    """The result of :func:`accelerate`."""

    model: nn.Module
    """The model. It is another object only if the given model was replaced as a whole."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The class of each module that was replaced, by its name in the model."""
    kept: dict[str, str] = field(default_factory=dict)
    """The reason for each module of a known library that was kept, by its name in the model."""

    def __str__(self) -> str:
        lines = [f"replaced {name or 'the model'}: {kind}" for name, kind in self.replaced.items()]
        lines += [f"kept {name or 'the model'}: {why}" for name, why in self.kept.items()]
        return "\n".join(lines) or "nothing to replace"


def accelerate(model: nn.Module) -> Acceleration:
    """Replaces modules of GATr, L-GATr, CGENN and flash-clifford within a model, in place, and says which.

    The parameters stay the same objects, so optimisers, and the names in the state dict, stay valid. Outputs are the
    same up to rounding. Modules are recognised by their class and package: the networks ``GATr`` and
    ``AxialGATr`` of ``gatr``; of ``lgatr`` 2.0 ``LGATr``, ``ConditionalLGATr``, ``LGATrSlim`` and
    ``ConditionalLGATrSlim``, of 1.4 ``LGATr``; CGENN's layers (``models.modules``); and flash-clifford's ``Layer``
    (``modules.layer``). A module with hooks is kept, as is a subclass, whose changes are not known. Compile networks and
    layers again if they were compiled.

    Args:
        model: any module; it is changed.

    Returns:
        The model, the replaced modules and the kept ones with reasons.

    >>> import torch, flashcliff
    >>> str(flashcliff.accelerate(torch.nn.Linear(2, 2)))
    'nothing to replace'
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"model: expected a torch.nn.Module, got {model!r}")
    result = Acceleration(model)
    result.model = _visit("", model, result, {})
    return result


def _visit(
    name: str, module: nn.Module, result: Acceleration, done: dict[nn.Module, nn.Module]
) -> nn.Module:
    """The module or its counterpart. A module that occurs twice is replaced once."""
    if module in done:
        return done[module]
    made = _counterpart(name, module, result)
    done[module] = module if made is None else made
    if made is not None:
        return made
    for child_name, child in list(module.named_children()):
        found = _visit(f"{name}.{child_name}" if name else child_name, child, result, done)
        if found is not child:
            module._modules[child_name] = found
    return module


def _counterpart(name: str, module: nn.Module, result: Acceleration) -> nn.Module | None:
    make = _maker(type(module))
    if make is None:
        return None
    try:
        made = adopt(make(module), module)
    except (NotReplaced, AttributeError, TypeError, ValueError) as error:
        result.kept[name] = f"{type(module).__name__}: {error}"
        return None
    result.replaced[name] = f"{type(made).__module__}.{type(made).__qualname__}"
    return made


def _maker(kind: type) -> Callable[[Any], nn.Module] | None:
    package = kind.__module__.split(".")[0]
    makers: Any = NETWORKS.get(package, {})
    if kind.__module__.startswith("models.modules."):
        makers = cgenn.LAYERS
    elif kind.__module__ == "modules.layer":
        makers = flash_clifford.LAYERS
    return makers.get(kind.__name__)
