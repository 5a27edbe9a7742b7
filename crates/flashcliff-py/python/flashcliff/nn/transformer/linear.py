"""The equivariant linear layer: every linear map that commutes with the group, and scalar channels."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from ..._ops import checks, doors
from ...errors import MissingScalarsError
from .._module import check_count, check_features, joined
from . import path
from .contract import Parameters, mapped, output
from .described import Description, Given, Networked, Tokens, Undescribed, Variant, attempt
from .geometry import (
    Geometry,
    GeometryLike,
    check_floating,
    check_multivectors,
    check_types,
    geometry_of,
    indices,
)

__all__ = ["INITIALIZATIONS", "EquiLinear", "Group", "NoChannels", "described"]

INITIALIZATIONS: dict[str, tuple[float, float, float]] = {
    "default": (1.0, 1.0, 0.0),
    "small": (0.1, 0.1, 0.0),
    "unit_scalar": (0.1, 1.0, 1.0),
    "almost_unit_scalar": (0.5, 1.0, 1.0),
}
"""For each name: the factor of weights to multivectors, of weights to scalars, and the mean of the bias."""
_COUNT = len(Parameters._fields)
_NAMES = "multivectors", "scalars", *Parameters._fields
_LINEAR_MAPS = "s2mvs", "mvs2s", "s2s"
_SIZES = "in_channels", "out_channels", "in_scalars", "out_scalars"
_NOTHING = type(None)


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

    The layer reads the parameters of ``s2mvs``, ``mvs2s`` and ``s2s`` and calls these only where they have hooks, are
    of another class, or have a ``forward`` of their own.

    Gradients of every order exist. Sources: GATr (arXiv 2305.18415, appendix A) and L-GATr (arXiv 2405.14806,
    section 3), with the names of their state dicts.
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
        if initialization not in INITIALIZATIONS:
            names = ", ".join(INITIALIZATIONS)
            raise ValueError(f"initialization: expected one of {names}, got {initialization!r}")
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
        # The bias goes to the scalar blade alone; the contraction would add it to every invariant blade.
        self._adds_bias = made_bias is not None and mixed > 1

        def linear(inputs: int, outputs: int, bias: bool) -> nn.Linear | None:
            return nn.Linear(inputs, outputs, bias, **made) if inputs and outputs else None  # type: ignore[arg-type]

        to_blades = linear(in_scalars, mixed * out_channels, bias)
        if in_scalars and not out_channels:
            to_blades = NoChannels(in_scalars, 0, bias, **made)  # type: ignore[arg-type]
        self.register_module("s2mvs", to_blades)
        self.register_module("mvs2s", linear(mixed * in_channels, out_scalars, bias))
        self.register_module("s2s", linear(in_scalars, out_scalars, False))
        self._shapes = _shapes_of(self._by_attributes())
        # The parameters that were last seen to have these shapes, by their identities.
        self._taken: list[int] = []
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
        check_multivectors("multivectors", multivectors, self.geometry.algebra, self.in_channels)
        self._check_scalars(scalars, multivectors)
        given = Given((multivectors, scalars if self.in_scalars else None))
        found = attempt(self, self.geometry, given, self._composed)
        return self._composed(given) if found is None else found

    def _composed(self, given: Given) -> tuple[Tensor, Tensor | None]:
        """The layer by operations that have derivatives of every order."""
        multivectors, scalars = given.here
        x, s, dtype = self._rows(multivectors, scalars)
        parameters = self._in_order()
        if parameters is None:
            return self._by_calls(multivectors, scalars, x, dtype)
        if dtype is not None:
            parameters = [p if p is None else p.to(dtype) for p in parameters]
        own_bias = None
        if self._adds_bias:
            own_bias, parameters[4] = parameters[4], None
        doors.check_open("EquiLinear", (x, s, *parameters), _NAMES)
        check_types("EquiLinear", (x, s, *parameters))
        out, out_s = output(self.geometry, self.out_scalars, x, s, Parameters(*parameters))  # type: ignore[arg-type]
        if own_bias is not None:
            out = torch.cat((out[:1] + own_bias, out[1:]))
        return self._shaped(multivectors, out, out_s)

    def _by_calls(
        self,
        multivectors: Tensor,
        scalars: Tensor | None,
        x: Tensor,
        dtype: torch.dtype | None,
    ) -> tuple[Tensor, Tensor | None]:
        """The layer with calls of the linear maps of scalars. ``x``: the rows of multivectors in the type ``dtype``."""
        weight, bias = self.weight, self.bias
        expected = self._shapes[0]
        if weight.shape != expected:
            raise ValueError(f"weight: expected {list(expected or ())}, got {list(weight.shape)}")
        out = mapped(self.geometry, x, weight if dtype is None else weight.to(dtype))
        out = out.view(out.shape[0], *multivectors.shape[1:-1], self.out_channels)
        mixed = self.geometry.scalar_blades
        s = scalars if self.in_scalars else None
        if self.s2mvs is not None and s is not None:
            added = self.s2mvs(s).unflatten(-1, (self.out_channels, len(mixed))).movedim(-1, 0)
            out = out.index_add(0, indices(mixed, out), added.to(out.dtype))
        if bias is not None:
            added = bias.view(-1).to(out.dtype).expand(1, *out.shape[1:])
            out = out.index_add(0, indices((0,), out), added)
        if not self.out_scalars:
            return out, None
        out_s = out.new_zeros(*out.shape[1:-1], self.out_scalars)
        if self.mvs2s is not None:
            given = multivectors.index_select(0, indices(mixed, multivectors))
            out_s = out_s + self.mvs2s(given.movedim(0, -1).flatten(-2)).to(out.dtype)
        if self.s2s is not None and s is not None:
            out_s = out_s + self.s2s(s).to(out.dtype)
        return out, out_s

    @property
    def _sizes(self) -> _Sizes:
        return _Sizes(*(getattr(self, name) for name in _SIZES))

    def variant(self) -> Variant:
        """The call that the layer was made for."""
        return Variant((self.in_channels, self.in_scalars))

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layer to a network."""
        return described((self,), network, x)

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

    def _rows(
        self, multivectors: Tensor, scalars: Tensor | None
    ) -> tuple[Tensor, Tensor | None, torch.dtype | None]:
        """Inputs with one axis of rows, in autocast's type, and that type."""
        x, s = multivectors, scalars
        if x.dim() != 3:
            x = x.reshape(x.shape[0], -1, self.in_channels)
            s = None if s is None else s.reshape(-1, self.in_scalars)
        low = _autocast_type(x)
        if low is not None:
            x, s = x.to(low), None if s is None else s.to(low)
        return x, s, low

    def _shaped(
        self, multivectors: Tensor, out: Tensor, out_s: Tensor | None
    ) -> tuple[Tensor, Tensor | None]:
        """Outputs with the batch axes of the input."""
        batch = multivectors.shape[1:-1]
        if len(batch) == 1:
            return out, out_s
        out = out.view(out.shape[0], *batch, self.out_channels)
        return out, None if out_s is None else out_s.view(*batch, self.out_scalars)

    def _in_order(self) -> list[Tensor | None] | None:
        """The parameters in the order of :class:`~.contract.Parameters`; ``None`` where linear maps must be called."""
        # Attributes of modules are slow to look up, and this runs in every call.
        modules, own = self._modules, self._parameters
        s2mvs, mvs2s, s2s = modules["s2mvs"], modules["mvs2s"], modules["s2s"]
        if type(s2mvs) is NoChannels:
            s2mvs = None
        if type(s2s) is NoChannels:
            s2s = None
        if path.of_calls((s2mvs, mvs2s, s2s), nn.Linear) is not None:
            return None
        try:
            of_blades = own if s2mvs is None else s2mvs._parameters
            found: list[Tensor | None] = [
                own["weight"],
                None if s2mvs is None else of_blades["weight"],
                None if mvs2s is None else mvs2s._parameters["weight"],
                None if s2s is None else s2s._parameters["weight"],
                of_blades["bias"],
                None if mvs2s is None else mvs2s._parameters["bias"],
                None if s2s is None else s2s._parameters["bias"],
                None if s2mvs is None else own["bias"],
            ]
        except KeyError:
            # Parameters may be attributes of another kind: those of replicas, or results of a parametrization.
            found = self._by_attributes()
        if torch.compiler.is_compiling() or list(map(id, found)) != self._taken:
            if not self._takes(found):
                return None
            if not torch.compiler.is_compiling():
                self._taken = list(map(id, found))
        if s2mvs is None and found[4] is not None:
            found[4] = found[4].view(-1)
        return found[:_COUNT]

    def _by_attributes(self) -> list[Tensor | None]:
        """The parameters as attributes, in order, and behind them the biases that layers do not have."""
        s2mvs, mvs2s, s2s = map(_with_channels, (self.s2mvs, self.mvs2s, self.s2s))
        return [
            self.weight,
            None if s2mvs is None else s2mvs.weight,
            None if mvs2s is None else mvs2s.weight,
            None if s2s is None else s2s.weight,
            self.bias if s2mvs is None else s2mvs.bias,
            None if mvs2s is None else mvs2s.bias,
            None if s2s is None else s2s.bias,
            None if s2mvs is None else self.bias,
        ]

    def _takes(self, found: list[Tensor | None]) -> bool:
        """Whether parameters are those that the layer was made with, by their types and shapes."""
        if not torch.compiler.is_compiling():
            if not {_NOTHING, *doors.PLAIN}.issuperset(map(type, found)):
                return False
        return _shapes_of(found) == self._shapes

    def why_called(self) -> str | None:
        """The reason why the linear maps within are called; ``None`` if the layer reads their parameters alone."""
        for name in ("s2mvs", "mvs2s", "s2s"):
            why = path.of_calls((_with_channels(getattr(self, name)),), nn.Linear)
            if why is not None:
                return f"{name} {why}"
        if self._in_order() is None:
            return "its parameters have other types or shapes than those that it was made with"
        return None

    def _check_scalars(self, scalars: Tensor | None, multivectors: Tensor) -> None:
        expected = [*multivectors.shape[1:-1], self.in_scalars]
        if scalars is None:
            if self.in_scalars:
                raise ValueError(f"scalars: expected {expected}, got None")
        elif scalars.shape[-1] == 0 and not self.in_scalars:
            return
        elif not scalars.is_floating_point():
            check_floating("scalars", scalars)
        elif list(scalars.shape) != expected:
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
    """Adds layers that share their input to a network, with the scalars of the input behind their outputs if they are kept."""
    outputs, parameters = [], []
    for layer in layers:
        if type(layer) is not EquiLinear:
            raise Undescribed(f"a layer is of the class {type(layer).__name__}")
        parameters.append(layer._described(network))
        sizes = layer._sizes
        if (sizes.inputs, sizes.in_scalars) != x.channels or layer.geometry != layers[0].geometry:
            raise Undescribed("the channels of layers do not fit")
        outputs.append((sizes.outputs, sizes.out_scalars))
    if keeps_scalars and any(s for _, s in outputs):
        raise Undescribed("a layer has scalars that nothing reads")
    return network.linear(layers[0].geometry, x, outputs, parameters, keeps_scalars)


def _autocast_type(x: Tensor) -> torch.dtype | None:
    """The type of autocast, or ``None`` where it is off or leaves a tensor as it is."""
    device = x.device.type
    if x.dtype == torch.float64 or device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _shapes_of(parameters: Sequence[Tensor | None]) -> list[torch.Size | None]:
    return [None if p is None else p.shape for p in parameters]


def _spread(geometry: Geometry, index: int) -> float:
    """The factor of the start of a map.

    GATr divides maps by their norms, makes up for that in the starts, and halves the variance from the fourth map on.
    """
    if not geometry.unit_maps:
        return 1.0
    size = geometry.plan.sizes[index]
    return math.sqrt(size if index < 3 else size / 2)
