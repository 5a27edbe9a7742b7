"""The equivariant linear layer: every linear map that commutes with the group, and scalar channels."""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..._ops import checks, doors, remedies
from ...errors import MissingScalarsError
from .._module import check_count, check_features, joined
from . import path
from .contract import mapped
from .described import Calls, Description, Given, Networked, Tokens, Undescribed, Variant, run
from .geometry import (
    Geometry,
    GeometryLike,
    check_floating,
    check_multivectors,
    check_types,
    geometry_of,
)

__all__ = ["INITIALIZATIONS", "EquiLinear", "Group", "NoChannels", "described"]

INITIALIZATIONS: dict[str, tuple[float, float, float]] = {
    "default": (1.0, 1.0, 0.0),
    "small": (0.1, 0.1, 0.0),
    "unit_scalar": (0.1, 1.0, 1.0),
    "almost_unit_scalar": (0.5, 1.0, 1.0),
}
"""For each name: the factor of weights to multivectors, of weights to scalars, and the mean of the bias."""
_LINEAR_MAPS = "s2mvs", "mvs2s", "s2s"
_NAMES = "multivectors", "scalars", "weight", "bias"
_SIZES = "in_channels", "out_channels", "in_scalars", "out_scalars"


@path.stands_for
class NoChannels(nn.Linear):
    """A linear map from or to no scalar channels, which no output reads.

    The published networks have it, so it has a place in state dicts and in the order of parameters, by which optimisers
    keep their states. Its parameters have no elements and no gradients.
    """

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **named)
        self.requires_grad_(False)

    def reset_parameters(self) -> None:
        """Draws nothing: there are no elements."""


@path.stands_for
class EquiLinear(Networked):
    r"""A linear map of multivectors and scalars that commutes with the group of a geometry.

    ``out[i] = sum over maps a and entries (i <- j) of a: factor W_a x[j]``, where the maps are
    :meth:`flashcliff.Algebra.equivariant_maps`, and scalar channels mix with the blades that the group leaves alone.

    Shapes:
        - multivectors ``[blades, *batch, in_channels]`` to ``[blades, *batch, out_channels]``
        - scalars ``[*batch, in_scalars]`` to ``[*batch, out_scalars]``; ``None`` stands for no channels
        - ``weight`` ``[out_channels, in_channels, maps]``: 9 maps for Cl(3,0,1), 5 or 10 for Cl(1,3)
        - ``s2mvs``, ``mvs2s``, ``s2s``: linear maps from scalars to the invariant blades, back, and between scalars
        - ``bias`` ``[out_channels, 1]``, only without scalar inputs

    Parameters without elements need no gradient.

    Args:
        geometry: an algebra, or a :class:`Geometry`.
        in_channels: multivector channels of the input.
        out_channels: multivector channels of the output.
        in_scalars: scalar channels of the input; may be 0.
        out_scalars: scalar channels of the output; may be 0.
        bias: whether there are biases.
        own_bias: whether there is one without scalar inputs; L-GATr 1.4 has none for 0 of them.
        initialization: ``"default"`` keeps the variance, ``"small"`` divides it by 100, ``"unit_scalar"`` and
            ``"almost_unit_scalar"`` start near the scalar 1.

    As one function the layer reads the parameters of ``s2mvs``, ``mvs2s`` and ``s2s``; where these have hooks, are of another class, or
    have their own ``forward``, it calls them.

    Gradients of every order exist. Sources: GATr (arXiv 2305.18415, appendix A) and L-GATr (arXiv 2405.14806,
    section 3), with the names of their state dicts.

    Example:
        >>> import torch
        >>> from flashcliff import Algebra
        >>> from flashcliff.nn.transformer import EquiLinear
        >>> layer = EquiLinear(Algebra(3, 0, 1), 4, 6, 8, 8)
        >>> mv, s = layer(torch.randn(16, 2, 10, 4), torch.randn(2, 10, 8))
        >>> mv.shape, s.shape
        (torch.Size([16, 2, 10, 6]), torch.Size([2, 10, 8]))
    """

    bias: Tensor | None
    s2mvs: nn.Linear | None
    mvs2s: nn.Linear | None
    s2s: nn.Linear | None

    def __init__(
        self,
        geometry: GeometryLike,
        in_channels: int,
        out_channels: int,
        in_scalars: int = 0,
        out_scalars: int = 0,
        *,
        bias: bool = True,
        own_bias: bool = True,
        initialization: str = "default",
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.geometry = geometry_of(geometry)
        self.in_channels = check_features("in_channels", in_channels)
        self.out_channels = check_count("out_channels", out_channels)
        self.in_scalars = check_count("in_scalars", in_scalars)
        self.out_scalars = check_count("out_scalars", out_scalars)
        bias = checks.flag("bias", bias)
        own_bias = checks.flag("own_bias", own_bias)
        initialization = checks.one_of("initialization", initialization, INITIALIZATIONS)
        if "unit" in initialization and not (bias and in_scalars):
            raise MissingScalarsError(
                f"initialization: {initialization!r} sets the bias of the scalar inputs, so it needs bias=True and "
                f"in_scalars >= 1, got bias={bias} and in_scalars={in_scalars}"
            )
        self.initialization = initialization
        made = {"device": device, "dtype": dtype}
        mixed = len(self.geometry.scalar_blades)
        shape = (out_channels, in_channels, self.geometry.plan.count)
        self.weight = nn.Parameter(torch.empty(shape, **made))  # type: ignore[arg-type]
        made_bias = None
        if bias and own_bias and not in_scalars:
            made_bias = nn.Parameter(torch.empty(out_channels, 1, **made))  # type: ignore[arg-type]
        self.register_parameter("bias", made_bias)

        def linear(inputs: int, outputs: int, bias: bool) -> nn.Linear | None:
            return nn.Linear(inputs, outputs, bias, **made) if inputs and outputs else None  # type: ignore[arg-type]

        to_blades = linear(in_scalars, mixed * out_channels, bias)
        if in_scalars and not out_channels:
            to_blades = NoChannels(in_scalars, 0, bias, **made)  # type: ignore[arg-type]
        self.register_module("s2mvs", to_blades)
        self.register_module("mvs2s", linear(mixed * in_channels, out_scalars, bias))
        self.register_module("s2s", linear(in_scalars, out_scalars, False))
        for parameter in self._parameters.values():
            if parameter is not None:
                parameter.requires_grad_(parameter.numel() > 0)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws all parameters anew, uniformly, with the bounds of the published networks."""
        of_multivectors, of_scalars, mean = INITIALIZATIONS[self.initialization]
        plan = self.geometry.plan
        s2mvs, mvs2s, s2s = map(_with_channels, (self.s2mvs, self.mvs2s, self.s2s))
        bound = of_multivectors / math.sqrt(self.in_channels)
        with torch.no_grad():
            for index in range(plan.count):
                spread = bound * _spread(self.geometry, index)
                self.weight[..., index].uniform_(-spread, spread)
            if self.bias is not None:
                self.bias.zero_()
            if s2mvs is not None:
                if self.geometry.shared_starts:
                    self.weight[..., 0].uniform_(-bound / math.sqrt(2), bound / math.sqrt(2))
                    if self.geometry.group == "spin":
                        self.weight[..., -1].uniform_(-bound / math.sqrt(2), bound / math.sqrt(2))
                spread = of_multivectors / math.sqrt(2 * self.in_scalars)
                s2mvs.weight.uniform_(-spread, spread)
                if s2mvs.bias is not None:
                    spread = 1 / math.sqrt(self.in_scalars + self.in_channels)
                    s2mvs.bias.uniform_(mean - spread, mean + spread)
            to_scalars = [layer for layer in (s2s, mvs2s) if layer is not None]
            for layer in to_scalars:
                spread = of_scalars / math.sqrt(layer.in_features * len(to_scalars))
                layer.weight.uniform_(-spread, spread)
            if mvs2s is not None and mvs2s.bias is not None:
                spread = of_scalars / math.sqrt(sum(layer.in_features for layer in to_scalars))
                mvs2s.bias.uniform_(-spread, spread)

    def forward(
        self, multivectors: Tensor, scalars: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None]:
        """From multivectors ``[blades, *batch, in_channels]`` and scalars ``[*batch, in_scalars]`` to
        ``out_channels`` and ``out_scalars``; ``None`` stands for no scalars.
        """
        check_multivectors("multivectors", multivectors, self.geometry.algebra, self.in_channels)
        self._check_scalars(scalars, multivectors)
        given = Given((multivectors, scalars if self.in_scalars else None))
        return run(self, self.geometry, given, self._composed)

    def _composed(self, given: Given) -> tuple[Tensor, Tensor | None]:
        """The layer by operations that have derivatives of every order, and by the calls of its linear maps."""
        multivectors, scalars = given.here
        x, bias = multivectors, self.bias
        weight: Tensor = self.weight
        expected = self.out_channels, self.in_channels, self.geometry.plan.count
        if weight.shape != expected:
            raise ValueError(f"weight: expected {list(expected)}, got {list(weight.shape)}")
        low = _autocast_type(x)
        if low is None:
            check_types("EquiLinear", (x, scalars, *self._own_parameters()))
        else:
            x, weight = x.to(low), weight.to(low)
        doors.check_open("EquiLinear", (x, scalars, *self._own_parameters()), _NAMES)
        out = mapped(self.geometry, x.reshape(len(x), -1, self.in_channels), weight)
        out = out.view(len(out), *multivectors.shape[1:-1], self.out_channels)
        s2mvs, mvs2s, s2s = map(_with_channels, (self.s2mvs, self.mvs2s, self.s2s))
        mixed = self.geometry.scalar_blades
        added: list[tuple[int, Tensor]] = []
        if s2mvs is not None and scalars is not None:
            of_blades = s2mvs(scalars).unflatten(-1, (self.out_channels, len(mixed)))
            added += zip(mixed, of_blades.unbind(-1))
        if bias is not None:
            added.append((0, bias.view(-1)))
        for blade, more in added:
            one = out[blade : blade + 1] + more.to(out.dtype)
            out = torch.cat((out[:blade], one, out[blade + 1 :]))
        if not self.out_scalars:
            return out, None
        out_s = out.new_zeros(*out.shape[1:-1], self.out_scalars)
        if mvs2s is not None:
            read = torch.stack([x[blade] for blade in mixed], -1).flatten(-2)
            out_s = out_s + mvs2s(read).to(out.dtype)
        if s2s is not None and scalars is not None:
            out_s = out_s + s2s(scalars).to(out.dtype)
        return out, out_s

    def _own_parameters(self) -> list[Tensor | None]:
        """The parameters of the layer, and of linear maps that are PyTorch's own: others may have what they want."""
        maps = [m for m in (self.s2mvs, self.mvs2s, self.s2s) if type(m) is nn.Linear]
        return [self.weight, self.bias, *(p for m in maps for p in m._parameters.values())]

    @property
    def _sizes(self) -> _Sizes:
        return _Sizes(*(getattr(self, name) for name in _SIZES))

    def variant(self) -> Variant:
        """The call that the layer was made for."""
        return Variant((self.in_channels, self.in_scalars))

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network. Classes that are derived from it call it within their own call, so they may be any."""
        return _added((self,), network, x)

    def _described(self, network: Description) -> dict[str, int]:
        """Adds the parameters to a network, by the names of the state dict."""
        sizes, plan = self._sizes, self.geometry.plan
        network.reads(self, "geometry", *_SIZES)
        mixed = len(self.geometry.scalar_blades)
        if not sizes.outputs:
            raise Undescribed("a layer has no multivectors to give")
        shapes: dict[str, tuple[int, ...]] = {"weight": (sizes.outputs, sizes.inputs, plan.count)}
        if not sizes.in_scalars:
            shapes["bias"] = sizes.outputs, 1
        else:
            shapes["s2mvs.weight"] = mixed * sizes.outputs, sizes.in_scalars
            shapes["s2mvs.bias"] = (mixed * sizes.outputs,)
        if sizes.out_scalars:
            shapes["mvs2s.weight"] = sizes.out_scalars, mixed * sizes.inputs
            shapes["mvs2s.bias"] = (sizes.out_scalars,)
            if sizes.in_scalars:
                shapes["s2s.weight"] = sizes.out_scalars, sizes.in_scalars
        found: dict[str, int] = {}
        for prefix, module in (("", self), *((f"{n}.", self._modules[n]) for n in _LINEAR_MAPS)):
            if module is None or type(module) is NoChannels:
                continue
            for name in ("weight", "bias"):
                value = network.optional(module, name, shapes.get(prefix + name, ()))
                if value is not None:
                    found[prefix + name] = value
        return found

    def _check_scalars(self, scalars: Tensor | None, multivectors: Tensor) -> None:
        expected = [*multivectors.shape[1:-1], self.in_scalars]
        if scalars is None:
            if self.in_scalars:
                raise ValueError(f"scalars: expected {expected}, got None")
            return
        remedies.check_tensor("scalars", scalars)
        if scalars.shape[-1:] == (0,) and not self.in_scalars:
            return
        check_floating("scalars", scalars)
        if list(scalars.shape) != expected:
            raise ValueError(f"scalars: expected {expected}, got {list(scalars.shape)}")

    def extra_repr(self) -> str:
        return joined(
            f"{self.geometry!r}",
            f"in_channels={self.in_channels}, out_channels={self.out_channels}",
            f"in_scalars={self.in_scalars}, out_scalars={self.out_scalars}",
            f"maps={self.geometry.plan.count}",
        )


def _with_channels(layer: nn.Linear | None) -> nn.Linear | None:
    return None if isinstance(layer, NoChannels) else layer


class _Sizes(NamedTuple):
    """The channels of a layer."""

    inputs: int
    outputs: int
    in_scalars: int
    out_scalars: int


Group = tuple[EquiLinear, ...]
"""Layers that share their input."""


def described(
    layers: Group, network: Description, x: Tokens, keeps_scalars: bool = False
) -> Tokens:
    """Adds layers that share their input to a network, with the scalars of the input after their outputs if they are kept."""
    if isinstance(network, Calls):
        return network.linears(layers, x, keeps_scalars)
    for layer in layers:
        if type(layer) is not EquiLinear:
            own = type(layer)
            raise Undescribed(f"a layer is of the class {own.__name__} of {own.__module__}")
    return _added(layers, network, x, keeps_scalars)


def _added(layers: Group, network: Description, x: Tokens, keeps_scalars: bool = False) -> Tokens:
    outputs, parameters = [], []
    for layer in layers:
        parameters.append(layer._described(network))
        sizes = layer._sizes
        if (sizes.inputs, sizes.in_scalars) != x.channels or layer.geometry != layers[0].geometry:
            raise Undescribed("the channels of layers do not fit")
        outputs.append((sizes.outputs, sizes.out_scalars))
    if keeps_scalars and any(s for _, s in outputs):
        raise Undescribed("a layer has scalars that nothing reads")
    if keeps_scalars and len({mv for mv, _ in outputs}) > 1:
        raise Undescribed("factors have different channels")
    return network.linear(layers[0].geometry, x, outputs, parameters, keeps_scalars)


def _autocast_type(x: Tensor) -> torch.dtype | None:
    """The type of autocast, or ``None`` where it is off or leaves a tensor as it is."""
    device = x.device.type
    if x.dtype == torch.float64 or device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _spread(geometry: Geometry, index: int) -> float:
    """The factor of the start of a map.

    GATr divides maps by their norms, makes up for that in the starts, and halves the variance from the fourth map on.
    """
    if not geometry.unit_maps:
        return 1.0
    size = geometry.plan.sizes[index]
    return math.sqrt(size if index < 3 else size / 2)
