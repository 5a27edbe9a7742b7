"""Goes through a model and replaces what has a counterpart."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import nn

from .adopt import adopt, carry, check_state, home_of
from .calls import called_as
from .code import check_code
from .counterpart import Changed, Counterpart, Form, NotReplaced
from .outside import check_contents, check_known, check_methods, odd_part
from .proof import largest_difference, runs, undisturbed
from .recognise import form_of, why_not


@dataclass
class Acceleration:
    """The result of :func:`accelerate`."""

    model: nn.Module
    """The model. It is another object only if the given model was replaced as a whole."""
    replaced: dict[str, str] = field(default_factory=dict)
    """The class of each module that was replaced, by its name in the model."""
    differences: dict[str, float] = field(default_factory=dict)
    """The largest difference of each replaced module and its counterpart in the runs that proved it, of the largest element."""
    kept: dict[str, str] = field(default_factory=dict)
    """The reason for each module that was recognised and kept, by its name in the model."""

    def __str__(self) -> str:
        lines = [f"replaced {name or 'the model'}: {kind}" for name, kind in self.replaced.items()]
        lines += [f"kept {name or 'the model'}: {why}" for name, why in self.kept.items()]
        return "\n".join(lines) or "nothing to replace"


def accelerate(model: nn.Module) -> Acceleration:
    """Replaces modules of GATr, L-GATr, CGENN and flash-clifford within a model, in place, and says which.

    The parameters stay the same objects in the same order, so optimisers and their states, and the names in the state
    dict, stay valid; what is frozen stays frozen. Outputs are the same up to rounding.

    **What is recognised.** Modules are told by their structure: names and shapes of parameters, buffers, the modules within
    them, and what their call takes. Names of classes and packages count for nothing, so copies of a package and models that
    are built from its layers are recognised too. The largest that has a counterpart is replaced: a network (GATr, axial
    GATr, L-GATr and L-GATr-slim, with a condition or without), else a block, else attention, cross-attention or an MLP,
    else a bilinear layer, linear map, norm, gate or gated unit; CGENN's messages between bodies, its perceptron and its layers, and
    flash-clifford's layer.

    **How a replacement is proven.** Copies of the module and its counterpart get random parameters and run on random input,
    in batches and flat, with masks and references where the call takes them, in both modes where nothing is dropped, in
    float64 where the module computes in it. Outputs and all gradients must agree to 1e-9 of the largest element. Tables and
    numbers that a package has rounded to float32 are measured and taken out of the comparison, not excused by its limit.
    Nothing of the module is changed by that, nor is the state of random numbers.

    **What is kept.** A module whose counterpart does something else stays, and what is within it is tried by itself; that is
    taken back if the module does not run with it. A module stays with all that is within it if somebody changed an
    instance or its package: hooks and parametrizations, a method, a parameter, buffer or module that the code of the class
    does not name, a part of another class that makes it different, a replaced function, modes or types that differ.
    :attr:`Acceleration.kept` has the reasons.

    A module that occurs several times in the model, by several names or in several parents, is replaced in all places.
    Python lists, dictionaries and attributes that are not submodules keep the old module, which has the same parameters:
    assign the new one. Call this first and compile what it returns: compiled modules are kept. Layers return views of another
    layout: code between them that calls ``view`` on their results needs ``reshape``.

    A network that was replaced as a whole is called as before; the modules within it call each other in flashcliff's way. Hooks
    that are registered on a block later see multivectors ``[blades, *batch, items, channels]``, then scalars, all by position.

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
    done[module] = module
    if type(module).__module__.split(".")[0] == "flashcliff":
        return module
    form = None if _is_compiled(module) else form_of(module)
    if form is None:
        why = why_not(module)
        if why is not None:
            result.kept[name] = f"{type(module).__qualname__}: {why}"
        _visit_children(name, module, result, done)
        return module
    try:
        with undisturbed(home_of(module)[0]):
            done[module] = _replacement(name, module, form, result)
    except NotReplaced as error:
        if form.telling:
            result.kept[name] = f"{type(module).__qualname__}: {error}"
        # Somebody's change of a part is a change of the whole, and may count on all of its parts.
        if not isinstance(error, Changed):
            _visit_parts(name, module, form, result, done)
    return done[module]


def _visit_parts(
    name: str,
    module: nn.Module,
    form: Form,
    result: Acceleration,
    done: dict[nn.Module, nn.Module],
) -> None:
    """Tries what is within a module that was kept, and takes all of it back if the module does not run any more, for
    example because it reads what ours lacks."""
    before = {inner: dict(inner._modules) for inner in module.modules()}
    ran = runs(module, form)
    _visit_children(name, module, result, done)
    if not ran or runs(module, form):
        return
    for inner, modules in before.items():
        inner._modules.update(modules)
        done[inner] = inner
    inside = f"{name}." if name else ""
    for names in (result.replaced, result.differences):
        for path in [path for path in names if path.startswith(inside)]:
            del names[path]
    result.kept[name] += "; it does not run with layers of ours within it"


def _visit_children(
    name: str, module: nn.Module, result: Acceleration, done: dict[nn.Module, nn.Module]
) -> None:
    for child_name, child in list(module._modules.items()):
        if child is None:
            continue
        path = f"{name}.{child_name}" if name else child_name
        if _is_compiled(module) and form_of(child) is not None:
            result.kept[path] = (
                f"{type(child).__name__}: it is compiled: call accelerate first, and compile what it returns"
            )
            continue
        found = _visit(path, child, result, done)
        if found is not child:
            module._modules[child_name] = found


def _is_compiled(module: nn.Module) -> bool:
    """Whether a module is what :func:`torch.compile` makes of one, which goes on calling the module that it was given."""
    return type(module).__name__ == "OptimizedModule"


def _replacement(name: str, module: nn.Module, form: Form, result: Acceleration) -> nn.Module:
    """The counterpart of a module, once nothing is found in which they differ.

    Raises:
        NotReplaced: something is.
    """
    called = type(module).forward is not nn.Module.forward
    try:
        check_contents(module)
        # A class without a `forward` has nothing that could be compared.
        if called:
            check_known(module)
            check_code(module)
    except NotReplaced:
        raise
    except Exception as error:
        raise _as_reason(error) from error
    made, result.differences[name] = _proven(module, form, called)
    result.replaced[name] = f"{type(made).__module__}.{type(made).__qualname__}"
    return made


def _proven(module: nn.Module, form: Form, called: bool) -> tuple[nn.Module, float]:
    """The first counterpart that does the same, and the largest difference of both.

    Raises:
        NotReplaced: none does. The message is of the most likely one.
    """
    first: NotReplaced | None = None
    for known in _counterparts(module, form):
        try:
            made = known.make()
            found = largest_difference(module, known) if called else 0.0
            adopt(made, module)
            if called:
                check_state(made, module)
                check_methods(made, module)
                carry(made, module)
                called_as(made, module)
            return made, found
        # Modules, and what somebody put into them, may raise anything.
        except Exception as error:
            first = first or _as_reason(error)
    first = first or NotReplaced(f"it looks like {form.name}, and nothing here has its sizes")
    odd = odd_part(module) if called else None
    raise first if odd is None else Changed(f"{first}; {odd}")


def _counterparts(module: nn.Module, form: Form) -> list[Counterpart]:
    try:
        return form.counterparts(module)
    except Exception as error:
        raise _as_reason(error) from error


def _as_reason(error: Exception) -> NotReplaced:
    """What is raised instead of an error: our own errors say what they mean, errors of modules may be anything."""
    if isinstance(error, NotReplaced):
        return error
    if isinstance(error, ValueError):
        return NotReplaced(str(error))
    return NotReplaced(f"its configuration could not be read: {type(error).__name__}: {error}")
