"""Muon for stacks of matrices, and the parameters of a network that are such."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.optim.optimizer import ParamsT

from .._ops import checks
from ..errors import UnsupportedError
from ..nn import (
    FCGPNorm,
    FlashCliffordLayer,
    FullyConnectedSteerableGeometricProduct,
    MVLinear,
    PointEmbedding,
)
from ..nn.transformer import EquiLinear

Axes = tuple[int, int, int]
"""The axes of a stack that are matrix, output and input."""

_LAST: Axes = (2, 0, 1)
_FIRST: Axes = (0, 2, 1)
_MATRICES: dict[tuple[type[nn.Module], str], Axes] = {
    (nn.Linear, "weight"): _LAST,
    (EquiLinear, "weight"): _LAST,
    (MVLinear, "weight"): _LAST,
    (PointEmbedding, "weight"): _LAST,
    (FullyConnectedSteerableGeometricProduct, "weight"): _LAST,
    (FCGPNorm, "weight"): _FIRST,
    (FlashCliffordLayer, "linear_weight"): _FIRST,
    (FlashCliffordLayer, "gp_weight"): _FIRST,
}
"""The parameters that are matrices, or stacks of them with these axes. A parameter of two axes is a matrix, but for ``gp_weight``, which
then has numbers for each channel."""
_Base: Any = getattr(torch.optim, "Muon", torch.optim.Optimizer)


class Muon(_Base):  # type: ignore[misc]
    """``torch.optim.Muon`` for stacks of matrices: each matrix of a stack is orthogonalised by itself.

    Layers here keep a matrix for each equivariant map, grade or path in one parameter of three axes, which PyTorch's class refuses. A
    linear layer is block diagonal with these matrices as blocks. So the step that is steepest in the norm of the whole layer is the
    steepest step of each block. Formula and numbers are the same as in ``torch.optim.Muon``: a stack does what its matrices would do as
    parameters. The state of a parameter is ``momentum_buffer``, of its shape.

    A step is some 20 launches for each matrix on a GPU. ``lr`` must be a number in a captured step, and then stays what it was.

    Source: K. Jordan et al., *Muon: an optimizer for hidden layers in neural networks*, 2024.

    Args:
        params: matrices ``[out, in]``, stacks of three axes, or groups of them. The option ``axes`` of a group of stacks has the axes
            that are matrix, output and input: ``(2, 0, 1)`` for ``[out, in, maps]``. :func:`split_matrices` makes such groups. Without
            ``axes`` all parameters are matrices.
        lr, weight_decay: as for ``torch.optim.Muon``.
        options: the other options of ``torch.optim.Muon``: ``momentum``, ``nesterov``, ``ns_coefficients``, ``eps``, ``ns_steps``,
            ``adjust_lr_fn``.

    Raises:
        TypeError: for options of other types.
        ValueError: for parameters of other numbers of axes than their group says, ``axes`` that are not an order of three; options out
            of range; no parameters; states of another optimiser or model.
        flashcliff.UnsupportedError: for PyTorch before 2.9, which has no Muon.

    Example:
        >>> import torch
        >>> from flashcliff import nn, optim
        >>> layer = nn.MVLinear((3, 0, 0), 4, 4, bias=False)
        >>> optimizer = optim.Muon(optim.split_matrices(layer).matrices, lr=0.02)
        >>> layer(torch.randn(8, 32, 4)).square().mean().backward()
        >>> optimizer.step()
    """

    def __init__(
        self, params: ParamsT, lr: float = 1e-3, weight_decay: float = 0.1, **options: Any
    ) -> None:
        if _Base is torch.optim.Optimizer:
            raise UnsupportedError(
                f"Muon: expected PyTorch 2.9 or later, which has torch.optim.Muon, got {torch.__version__}; install a later one, or take "
                "AdamW or Lion"
            )
        _check_options({"lr": lr, "weight_decay": weight_decay, **options})
        if isinstance(params, Tensor):
            raise TypeError("Muon: expected parameters or groups in a list, got one tensor; write `[parameter]`")
        given = list(params)
        if not given:
            raise ValueError("Muon: expected at least one parameter or group, got none")
        # PyTorch's class takes matrices alone, so it checks the options with one.
        super().__init__([torch.empty(0, 0)], lr, weight_decay, **options)
        self.defaults["axes"] = None
        self.param_groups.clear()
        groups = given if given and isinstance(given[0], dict) else [{"params": given}]
        for group in groups:
            self.add_param_group(group)  # type: ignore[arg-type]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        super().add_param_group(param_group)
        group = self.param_groups[-1]
        try:
            group.setdefault("axes", None)
            _check_group(group)
        except (TypeError, ValueError):
            self.param_groups.pop()
            raise

    def __setstate__(self, state: dict[str, Any]) -> None:
        """Takes a state that was loaded or copied. A state of other parameters or of another optimiser is an error, and the earlier
        state stays."""
        own = self.__dict__.get("param_groups", ())
        for index, group in enumerate(state.get("param_groups", ())):
            missing = [name for name in _OPTIONS if name not in group]
            if missing:
                others = ", ".join(str(name) for name in group if name != "params")
                raise ValueError(
                    f"Muon: expected the state of a Muon, got one whose group {index} has no {', '.join(missing)}, but {others}: it is of "
                    "another optimiser; load it there"
                )
            # PyTorch's Muon has none.
            group.setdefault("axes", own[index]["axes"] if index < len(own) else None)
            _check_group(group)
            for parameter in group["params"]:
                _check_momentum(state.get("state", {}).get(parameter, {}), parameter)
        super().__setstate__(state)

    def _init_group(
        self,
        group: dict[str, Any],
        params_with_grad: list[Tensor],
        grads: list[Tensor],
        muon_momentum_bufs: list[Tensor],
    ) -> bool:
        """Adds the matrices of a group, their gradients and their momenta to the lists of a step."""
        # Others may have set options since the last step.
        _check_options(group)
        lists = (params_with_grad, grads, muon_momentum_bufs)
        found: tuple[list[Tensor], ...] = ([], [], [])
        has_complex: bool = super()._init_group(group, *found)
        for tensors, matrices in zip(found, lists):
            for tensor in tensors:
                matrices.extend(_matrices(tensor, group["axes"]))
        return has_complex


_NUMBERS = "weight_decay", "momentum", "eps"
_OPTIONS = "lr", *_NUMBERS, "nesterov", "ns_coefficients", "ns_steps"


def _check_options(options: Mapping[str, Any]) -> None:
    """Raises for options of other types, or out of range. Names that are no options are errors of PyTorch's class."""
    rate = options["lr"]
    if isinstance(rate, Tensor):
        if rate.numel() != 1 or not rate.is_floating_point():
            raise ValueError(
                f"lr: expected a number, or a tensor of one floating-point number, got {list(rate.shape)} of {rate.dtype}"
            )
    else:
        checks.epsilon("lr", rate)
    for name in _NUMBERS:
        if name in options:
            checks.epsilon(name, options[name])
    checks.flag("nesterov", options.get("nesterov", True))
    if not 0 <= checks.integer("ns_steps", options.get("ns_steps", 0)) < 100:
        raise ValueError(f"ns_steps: expected 0 to 99, got {options['ns_steps']}")
    factors = options.get("ns_coefficients", (0.0, 0.0, 0.0))
    if not isinstance(factors, (tuple, list)) or len(factors) != 3:
        raise TypeError(f"ns_coefficients: expected a tuple of three numbers, got {factors!r}")
    for factor in factors:
        checks.finite("ns_coefficients", factor)
    if options.get("adjust_lr_fn") is not None:
        # PyTorch's class knows the names.
        _Base([torch.empty(0, 0)], adjust_lr_fn=checks.word("adjust_lr_fn", options["adjust_lr_fn"]))


def _check_group(group: Mapping[str, Any]) -> None:
    _check_options(group)
    for parameter in group["params"]:
        _check(parameter, group["axes"])


def _check_momentum(state: Mapping[str, Any], parameter: Tensor) -> None:
    momentum = state.get("momentum_buffer")
    if momentum is not None and momentum.shape != parameter.shape:
        raise ValueError(
            f"Muon: expected momenta of the shapes of their parameters, got {list(momentum.shape)} for a parameter {list(parameter.shape)}: "
            "the state is of another model"
        )


def _check(parameter: Tensor, axes: Axes | None) -> None:
    if axes is None and parameter.ndim != 2:
        raise ValueError(
            f"Muon: expected matrices, got a parameter of the shape {list(parameter.shape)}; give the option `axes` with a group of stacks, "
            "such as (2, 0, 1) for [out, in, maps], and other parameters to AdamW or Lion"
        )
    if axes is not None and (parameter.ndim != 3 or sorted(checks.integers("axes", axes)) != [0, 1, 2]):
        raise ValueError(
            f"Muon: expected parameters of three axes and their order in `axes`, got the shape {list(parameter.shape)} and axes {axes}"
        )


def _matrices(stack: Tensor, axes: Axes | None) -> Iterable[Tensor]:
    return [stack] if axes is None else stack.detach().permute(axes).unbind()


class Matrices(NamedTuple):
    """The parameters of a network by what they are.

    Example:
        >>> from flashcliff import nn, optim
        >>> len(optim.split_matrices(nn.MVLinear((3, 0, 0), 4, 8)).matrices)
        1
    """

    matrices: list[dict[str, Any]]
    """Groups for :class:`Muon`, with names: matrices, and stacks of them."""
    rest: list[tuple[str, Tensor]]
    """All others with their names, for :class:`AdamW` or :class:`Lion`: biases, scales, numbers for each channel."""


def split_matrices(network: nn.Module, rest: Iterable[nn.Module] = ()) -> Matrices:
    """Splits the parameters of a network that require gradients into matrices, for :class:`Muon`, and the rest.

    Matrices are the weights by which these layers sum over input channels: ``torch.nn.Linear``, :class:`flashcliff.nn.MVLinear`,
    :class:`flashcliff.nn.PointEmbedding`, :class:`flashcliff.nn.FullyConnectedSteerableGeometricProduct`,
    :class:`flashcliff.nn.FCGPNorm`, :class:`flashcliff.nn.FlashCliffordLayer`, :class:`flashcliff.nn.transformer.EquiLinear`, and
    classes made from them. Each parameter is in one group.

    Args:
        network: any module.
        rest: modules within it whose parameters all belong to the rest: Muon is for hidden layers, so name the first and the last.

    Raises:
        ValueError: for a module in ``rest`` that is not within the network.

    Example:
        >>> from flashcliff import nn, optim
        >>> matrices, rest = optim.split_matrices(nn.MVLinear((3, 0, 0), 4, 8))
        >>> [name for name, _ in rest]
        ['bias']
        >>> optimisers = [optim.Muon(matrices, lr=0.02), optim.AdamW(rest, lr=1e-3)]
    """
    others = {id(parameter) for module in _within(network, rest) for parameter in module.parameters()}
    groups: dict[Axes | None, list[tuple[str, Tensor]]] = {}
    plain: list[tuple[str, Tensor]] = []
    seen: set[int] = set()
    for name, parameter, axes in _parameters(network):
        if id(parameter) in seen or not parameter.requires_grad:
            continue
        seen.add(id(parameter))
        if axes is None or id(parameter) in others:
            plain.append((name, parameter))
        else:
            of_group = None if parameter.ndim == 2 else axes
            groups.setdefault(of_group, []).append((name, parameter))
    return Matrices([{"params": own, "axes": axes} for axes, own in groups.items()], plain)


def _within(network: nn.Module, modules: Iterable[nn.Module]) -> list[nn.Module]:
    if not isinstance(network, nn.Module):
        raise TypeError(f"network: expected a torch.nn.Module, got {type(network).__name__}")
    if not isinstance(modules, Iterable):
        raise TypeError(f"rest: expected modules as an iterable, got {type(modules).__name__}")
    own, found = set(map(id, network.modules())), list(modules)
    for module in found:
        if id(module) not in own:
            raise ValueError(
                f"rest: expected modules of the network, got {type(module).__name__}, which is not in {type(network).__name__}"
            )
    return found


def _parameters(network: nn.Module) -> Iterator[tuple[str, nn.Parameter, Axes | None]]:
    """The parameters of all modules, with the axes of those that are matrices."""
    for path, module in network.named_modules():
        for name, parameter in module.named_parameters(recurse=False):
            full = f"{path}.{name}" if path else name
            yield full, parameter, _axes(module, name, parameter)


def _axes(module: nn.Module, name: str, parameter: Tensor) -> Axes | None:
    if isinstance(module, FlashCliffordLayer) and parameter.ndim == 2:
        return None
    kinds = type(module).__mro__
    return next((_MATRICES[kind, name] for kind in kinds if (kind, name) in _MATRICES), None)
