"""Goes through a model and replaces what has a counterpart."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from . import cgenn, flash_clifford
from .adopt import adopt, home_of
from .code import check_code
from .counterpart import Counterpart, NotReplaced
from .proof import check_same, undisturbed
from .transformers import NETWORKS
from .unchanged import check_contents, check_unchanged


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

    The parameters stay the same objects in the same order, so optimisers and their states, and the names in the state
    dict, stay valid; what is frozen stays frozen. Outputs are the same up to rounding. Modules are recognised by their
    class and package: the networks ``GATr`` and ``AxialGATr`` of ``gatr``; of ``lgatr`` 2.0 ``LGATr``,
    ``ConditionalLGATr``, ``LGATrSlim`` and ``ConditionalLGATrSlim``, of 1.4 ``LGATr``; CGENN's layers
    (``models.modules``); and flash-clifford's ``Layer`` (``modules.layer``).

    A module is kept as it was, with a reason, if somebody changed it or anything within it in a way that its counterpart
    would not have: a subclass, another layer, hooks and parametrizations, a method or attribute of an instance, a class or
    a function of the package, buffers, modes, or types that differ within it. Copies of both are then run on random input,
    in float64 where the package computes in it, and the module is kept if outputs or gradients differ. Nothing of the
    module is changed by that, nor is the state of random numbers.

    A module that occurs several times in the model, by several names or in several parents, is replaced in all places.
    Python lists, dictionaries and attributes that are no submodules keep the old module, which has the same parameters: set
    them anew. Call this first and compile what it returns: compiled modules are kept. So are modules in 16 bits on the CPU.

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
    if name in result.kept:
        # What is kept stays as it was, with all within it.
        return module
    for child_name, child in list(module._modules.items()):
        if child is None:
            continue
        child_path = f"{name}.{child_name}" if name else child_name
        if type(module).__name__ == "OptimizedModule" and _maker(type(child)) is not None:
            # What torch.compile made goes on calling the module that it was given.
            result.kept[child_path] = (
                f"{type(child).__name__}: it is compiled: call accelerate first, and compile what it returns"
            )
            continue
        found = _visit(child_path, child, result, done)
        if found is not child:
            module._modules[child_name] = found
    return module


def _counterpart(name: str, module: nn.Module, result: Acceleration) -> nn.Module | None:
    make = _maker(type(module))
    if make is None:
        known = next((base for base in type(module).__mro__ if _maker(base)), None)
        if known is not None:
            result.kept[name] = (
                f"{type(module).__qualname__}: a subclass of {known.__name__}, whose changes are not known"
            )
        return None
    try:
        with undisturbed(home_of(module)[0]):
            made = _proven(module, make)
    except (NotReplaced, ValueError) as error:
        result.kept[name] = f"{type(module).__name__}: {error}"
        return None
    # Modules, and what somebody put into them, may raise anything.
    except Exception as error:
        why = f"its configuration could not be read: {type(error).__name__}: {error}"
        result.kept[name] = f"{type(module).__name__}: {why}"
        return None
    result.replaced[name] = f"{type(made).__module__}.{type(made).__qualname__}"
    return made


def _proven(module: nn.Module, maker: Callable[[Any], Counterpart]) -> nn.Module:
    """The counterpart of a module, once nothing is found in which they differ.

    Raises:
        NotReplaced: something is.
    """
    check_contents(module)
    known = maker(module)
    made = known.make()
    carried: list[tuple[str, str, Any]] = []
    # A class without a `forward` has nothing that could be compared.
    if type(module).forward is not nn.Module.forward:
        keys = module.state_dict().keys() ^ made.state_dict().keys()
        if keys:
            raise NotReplaced(f"`{min(keys)}` is in the state dict of one of both only")
        carried = check_unchanged(module, known.fresh(), known.caches)
        check_code(module)
        check_same(module, known, lambda new, old: adopt(new, old, []))
    return adopt(made, module, carried)


def _maker(kind: type) -> Callable[[Any], Counterpart] | None:
    package = kind.__module__.split(".")[0]
    makers: Any = NETWORKS.get(package, {})
    if kind.__module__.startswith("models.modules."):
        makers = cgenn.LAYERS
    elif kind.__module__ == "modules.layer":
        makers = flash_clifford.LAYERS
    return makers.get(kind.__name__)
