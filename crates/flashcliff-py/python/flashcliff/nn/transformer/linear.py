"""The equivariant linear layer: every linear map that commutes with the group, and scalar channels."""

from __future__ import annotations

import contextlib
import math
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from ..._ops import checks, doors, equivariant
from ..._ops.equivariant import Sizes
from ...errors import MissingScalarsError
from .._module import check_count, check_features, joined
from . import packed, path
from .contract import Form, Parameters, mapped, output, outputs
from .geometry import (
    Geometry,
    GeometryLike,
    check_floating,
    check_multivectors,
    geometry_of,
    indices,
)

__all__ = ["INITIALIZATIONS", "EquiLinear", "Group", "NoChannels", "packed_ahead", "together"]

INITIALIZATIONS: dict[str, tuple[float, float, float]] = {
    "default": (1.0, 1.0, 0.0),
    "small": (0.1, 0.1, 0.0),
    "unit_scalar": (0.1, 1.0, 1.0),
    "almost_unit_scalar": (0.5, 1.0, 1.0),
}
"""For each name: the factor of weights to multivectors, of weights to scalars, and the mean of the bias."""
_COUNT = len(Parameters._fields)
_NOTHING = type(None)


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
class EquiLinear(nn.Module):
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
        sizes = Sizes(in_channels, out_channels, in_scalars, out_scalars)
        found = self._by_attributes()
        self._shapes = _shapes_of(found)
        # The parameters that were last seen to have these shapes, by their identities.
        self._taken: list[int] = []
        has_bias, has_scalar_bias = found[4] is not None, found[5] is not None
        self._form = Form(self.geometry, sizes, has_bias and not self._adds_bias, has_scalar_bias)
        biased = self.geometry.scalar_blades if has_bias else ()
        if self._adds_bias:
            biased = (0,)
        self._layer = packed.Layer(self.geometry, sizes, biased, has_scalar_bias)
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
        x, s, dtype = self._rows(multivectors, scalars)
        dense = packed.serves((self._layer,), x)
        matrix = _made_ahead((self,)) if dense else None
        parameters = self._in_order() if matrix is None else []
        if parameters is None:
            return self._by_calls(multivectors, scalars, x, dtype)
        if dense:
            if matrix is None:
                matrix = _matrix((self,), parameters, dtype)
            (found,) = packed.outputs((self._layer,), matrix, x, s)
            return self._shaped(multivectors, *found)
        if dtype is not None:
            parameters = [p if p is None else p.to(dtype) for p in parameters]
        own_bias = None
        if self._adds_bias:
            own_bias, parameters[4] = parameters[4], None
        out, out_s = output(self._form, x, s, *parameters)
        if own_bias is not None:
            if doors.composes() or type(out) not in doors.PLAIN:
                out = torch.cat((out[:1] + own_bias, out[1:]))
            else:
                out[0] += own_bias
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

    def _rows(
        self, multivectors: Tensor, scalars: Tensor | None
    ) -> tuple[Tensor, Tensor | None, torch.dtype | None]:
        """Checked inputs with one axis of rows, in autocast's type, and that type."""
        check_multivectors("multivectors", multivectors, self.geometry.algebra, self.in_channels)
        self._check_scalars(scalars, multivectors)
        x = multivectors
        s = scalars if self.in_scalars else None
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
            if not {_NOTHING, *packed.PLAIN}.issuperset(map(type, found)):
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


Group = tuple[EquiLinear, ...]
"""Layers that share their input."""


def together(
    layers: Group, multivectors: Tensor, scalars: Tensor | None = None
) -> list[tuple[Tensor, Tensor | None]]:
    """The outputs of layers that share their input; on CUDA they are one matrix product, on the CPU one function of
    autograd."""
    found = _together(layers, multivectors, scalars)
    return [layer(multivectors, scalars) for layer in layers] if found is None else found


def _together(
    layers: Group, multivectors: Tensor, scalars: Tensor | None
) -> list[tuple[Tensor, Tensor | None]] | None:
    """The outputs of layers by one function; ``None`` if they must be called."""
    if path.of_calls(layers, EquiLinear) is not None:
        return None
    parts = _parts(layers)
    dense = packed.serves(parts, multivectors)
    if not dense and not _are_native(layers, multivectors):
        return None
    matrix = _made_ahead(layers) if dense else None
    parameters = _all_in_order(layers) if matrix is None else []
    if parameters is None:
        return None
    x, s, dtype = layers[0]._rows(multivectors, scalars)
    if dense:
        if matrix is None:
            matrix = _matrix(layers, parameters, dtype)
        found = packed.outputs(parts, matrix, x, s)
    else:
        found = outputs(tuple([layer._form for layer in layers]), x, s, *parameters)
    return [layer._shaped(multivectors, *pair) for layer, pair in zip(layers, found)]


def _all_in_order(layers: Sequence[EquiLinear]) -> list[Tensor | None] | None:
    """The parameters of layers, one after another; ``None`` where a linear map must be called."""
    found: list[Tensor | None] = []
    for layer in layers:
        own = layer._in_order()
        if own is None:
            return None
        found += own
    return found


class _Ahead(threading.local):
    matrices: Mapping[Group, packed.Matrix] | None = None


_AHEAD = _Ahead()


@contextlib.contextmanager
def packed_ahead(groups: Sequence[Group], multivectors: Tensor) -> Iterator[None]:
    """A context in which the parameters of layers are packed all at once, with fewer kernels than one by one.

    Args:
        groups: the layers, as they are called together.
        multivectors: the input of the module that has the layers.
    """
    parts = tuple([_parts(layers) for layers in groups])
    # Other parameters may be made by what replaced them, when a layer is called.
    parameters = _all_in_order([layer for layers in groups for layer in layers])
    if parameters is None:
        yield
        return
    _check_shapes([layer for layers in groups for layer in layers], parameters)
    before = _AHEAD.matrices
    made = packed.matrices(parts, parameters, _autocast_type(multivectors))
    _AHEAD.matrices = dict(zip(groups, made, strict=True))
    try:
        yield
    finally:
        _AHEAD.matrices = before


def _made_ahead(layers: Group) -> packed.Matrix | None:
    """The packed matrix of layers that share their input, if it was made ahead."""
    return None if _AHEAD.matrices is None else _AHEAD.matrices.get(layers)


def _matrix(
    layers: Group, parameters: Sequence[Tensor | None], dtype: torch.dtype | None
) -> packed.Matrix:
    """The packed matrix of layers that share their input."""
    _check_shapes(layers, parameters)
    (matrix,) = packed.matrices((_parts(layers),), parameters, dtype)
    return matrix


def _parts(layers: Group) -> tuple[packed.Layer, ...]:
    return tuple([layer._layer for layer in layers])


def _autocast_type(x: Tensor) -> torch.dtype | None:
    """The type of autocast, or ``None`` where it is off or leaves a tensor as it is."""
    device = x.device.type
    if x.dtype == torch.float64 or device == "meta" or not torch.is_autocast_enabled(device):
        return None
    return torch.get_autocast_dtype(device)


def _are_native(layers: Group, multivectors: Tensor) -> bool:
    """Whether the compiled layers take layers together, with nothing to be done before or behind them."""
    if len(layers) == 1 or not equivariant.is_native(multivectors) or any(x._adds_bias for x in layers):
        return False
    return _autocast_type(multivectors) is None


def _check_shapes(layers: Sequence[EquiLinear], parameters: Sequence[Tensor | None]) -> None:
    """Raises ``ValueError`` if parameters have other shapes than those that layers were made with: tables of packed matrices
    would read what is not theirs. A parameter may change its shape by ``data``, and stay what it is."""
    for at, layer in enumerate(layers):
        own = parameters[at * _COUNT : (at + 1) * _COUNT]
        expected = layer._shapes[:_COUNT]
        if layer.s2mvs is None and own[4] is not None:
            expected[4] = torch.Size((math.prod(expected[4] or ()),))
        if _shapes_of(own) != expected:
            raise ValueError(f"parameters: expected the shapes {expected} in {layer}, got {_shapes_of(own)}")


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
