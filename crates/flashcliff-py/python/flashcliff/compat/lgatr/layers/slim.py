"""The parts of L-GATr-slim, which has vectors and scalars in place of multivectors.

Vectors are ``[*batch, 4, channels]``, as ``(t, x, y, z)``, and scalars ``[*batch, scalars]``.

Source: arXiv 2512.17011.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ....nn._module import check_features
from ....nn.transformer import path
from ....nn.transformer.described import (
    Description,
    Given,
    Maybe,
    Tokens,
    Undescribed,
    drawn,
    run,
)
from ....nn.transformer.gate import ACTIVATIONS
from ..precision import in_float32, lowers
from .slim_operators import SLIM, glu_operator, norm_operator
from .slim_version import V2, VectorsScalars, Version, inward, minkowski, outward

__all__ = ["SlimDropout", "SlimGLU", "SlimLinear", "SlimMLP", "SlimRMSNorm"]


@path.stands_for
class SlimDropout(nn.Module):
    """Dropout of whole vectors ``[*batch, 4, channels]``, and of scalars, in training.

    Args:
        dropout_prob: the probability.
    """

    drops = "dropout_prob"
    """The attribute that is the probability."""

    def __init__(self, dropout_prob: float) -> None:
        super().__init__()
        self.dropout_prob = dropout_prob

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds dropout to a network."""
        return network.dropout(SLIM, self, x)

    def forward(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        """Vectors ``[*batch, 4, v_channels]`` and scalars ``[*batch, s_channels]``; in training some of them are 0."""
        if not self.training or self.dropout_prob == 0:
            return vectors, scalars
        p, grades = self.dropout_prob, (1, vectors.shape[-1])
        again = drawn(p, vectors.shape[:-2], grades, scalars.shape[-1], vectors)
        if again is None:
            kept = F.dropout(torch.ones_like(vectors[..., :1, :]), p)
            return vectors * kept, F.dropout(scalars, p)
        return vectors * again[0], scalars * again[1]


@path.stands_for
class SlimRMSNorm(nn.Module):
    """Vectors ``[*batch, 4, v_channels]`` and scalars ``[*batch, s_channels]``, divided by the root of their mean
    square plus epsilon.

    The square of a vector is ``|t^2 - x^2 - y^2 - z^2|``. Computed in float32 at least.

    Args:
        v_channels: vector channels; only for ``elementwise_affine``.
        s_channels: scalar channels; only for ``elementwise_affine``.
        epsilon: added to the mean square.
        elementwise_affine: whether each channel has a gain, ``weight_v`` and ``weight_s``.
    """

    weight_v: Tensor | None
    weight_s: Tensor | None

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        epsilon: float = 0.01,
        elementwise_affine: bool = True,
    ) -> None:
        super().__init__()
        self.epsilon = epsilon
        self.weight_v = self.weight_s = None
        if elementwise_affine:
            # A parameter without elements never has a gradient, which data-parallel training would wait for.
            self.weight_v = nn.Parameter(torch.ones(v_channels), requires_grad=v_channels > 0)
            self.weight_s = nn.Parameter(torch.ones(s_channels), requires_grad=s_channels > 0)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the norm to a network."""
        network.reads(self, "epsilon")
        v, s = x.channels
        if not s:
            raise Undescribed("a norm has no scalars")
        gains = [network.optional(self, "weight_v", (v,)), network.optional(self, "weight_s", (s,))]
        found = [gain for gain in gains if gain is not None]
        if len(found) == 1:
            raise Undescribed("a norm has gains of vectors or of scalars alone")
        operator = norm_operator(float(self.epsilon), bool(found))
        made = network.lanes(operator, x, (v, s), (1, 1), found)
        return network.apart(made, (x,), (gains[:1], gains[1:]), (True, True))

    @in_float32
    def forward(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        """Vectors ``[*batch, 4, v_channels]`` and scalars ``[*batch, s_channels]``, normalised together, in the same
        shapes.
        """
        given = Given(inward((vectors, scalars)))
        return outward(run(self, SLIM, given, self._composed))

    def _composed(self, given: Given) -> Maybe:
        """The norm by operations that have derivatives of every order."""
        vectors, scalars = outward(given.here)
        v, s = (x.to(torch.promote_types(x.dtype, torch.float32)) for x in (vectors, scalars))
        total = minkowski(v.square()).abs().sum(-1) + s.square().sum(-1)
        mean = total / (v.shape[-1] + s.shape[-1])
        factor_v = factor_s = torch.rsqrt(mean + self.epsilon).unsqueeze(-1)
        if self.weight_v is not None and self.weight_s is not None:
            factor_v, factor_s = factor_v * self.weight_v, factor_s * self.weight_s
        v = v * factor_v.unsqueeze(-2)
        return inward((v.to(vectors.dtype), (s * factor_s).to(scalars.dtype)))


@path.stands_for
class SlimLinear(nn.Module):
    """A linear map of vectors ``[*batch, 4, in_v_channels]``, and one of scalars ``[*batch, in_s_channels]``.

    Args:
        in_v_channels: vector channels of the input.
        out_v_channels: vector channels of the output.
        in_s_channels: scalar channels of the input.
        out_s_channels: scalar channels of the output.
        bias: whether scalars have a bias.
        initialization: ``"default"`` or ``"small"``, a tenth of it.
    """

    version = V2

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        bias: bool = True,
        initialization: str = "default",
        *,
        version: Version | None = None,
    ) -> None:
        super().__init__()
        version = version or self.version
        factors = {"default": 1.0, "small": 0.1}
        if initialization not in factors:
            raise ValueError(
                f"initialization: expected one of {', '.join(factors)}, got {initialization!r}"
            )
        self.out_s_channels = out_s_channels
        self.weight_v = nn.Parameter(torch.empty(out_v_channels, in_v_channels))
        self.linear_s: nn.Linear | None = None
        if version.empty_scalars or (in_s_channels and out_s_channels):
            self.linear_s = _unset(in_s_channels, out_s_channels, bias, self.weight_v.device)
        self._reset(factors[initialization], version)
        # As in SlimRMSNorm, parameters without elements need no gradient.
        for parameter in self.parameters():
            parameter.requires_grad_(parameter.numel() > 0)

    def _reset(self, factor: float, version: Version) -> None:
        weights = (
            [self.weight_v] if self.linear_s is None else [self.weight_v, self.linear_s.weight]
        )
        with torch.no_grad():
            for weight in weights:
                bound = factor / math.sqrt(max(weight.shape[1], 1))
                weight.uniform_(-bound, bound)
            if self.linear_s is not None and self.linear_s.bias is not None:
                inputs = self.linear_s.in_features
                # lgatr 1.4 leaves PyTorch's start of biases.
                spread = 1 / math.sqrt(inputs) if version.empty_scalars and inputs else 0.0
                self.linear_s.bias.uniform_(-spread, spread)

    @property
    def in_channels(self) -> tuple[int, int]:
        """The vector channels of the input, and its scalar channels."""
        return self.weight_v.shape[1], 0 if self.linear_s is None else self.linear_s.in_features

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the maps to a network."""
        network.reads(self, "out_s_channels")
        (v, s), (out, out_s) = x.channels, (len(self.weight_v), self.out_s_channels)
        if out_s and (self.linear_s is None or not s):
            raise Undescribed("a linear map makes scalars of none")
        parameters = {"weight": network.parameter(self, "weight_v", (out, v))} if out else {}
        if self.linear_s is not None and out_s:
            parameters["s2s.weight"] = network.parameter(self.linear_s, "weight", (out_s, s))
            bias = network.optional(self.linear_s, "bias", (out_s,))
            if bias is not None:
                parameters["mvs2s.bias"] = bias
        return network.linear(x.geometry, x, [(out, out_s)], [parameters])

    @in_float32
    def _of_vectors(self, vectors: Tensor) -> Tensor:
        return F.linear(vectors, self.weight_v)

    def forward(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        """From vectors ``[*batch, 4, in_v_channels]`` and scalars ``[*batch, in_s_channels]`` to ``out_v_channels``
        and ``out_s_channels``.
        """
        out = self._of_vectors(vectors)
        if self.linear_s is None:
            return out, scalars.new_zeros(*scalars.shape[:-1], self.out_s_channels)
        return out, self.linear_s(scalars)


def _unset(inputs: int, outputs: int, bias: bool, device: torch.device) -> nn.Linear:
    """A layer whose parameters are not set, as that of ``torch.nn.utils.skip_init``, which fails where tensors are fake."""
    made = nn.Linear(inputs, outputs, bias=bias, device="meta")
    for name, own in made.named_parameters():
        setattr(made, name, nn.Parameter(torch.empty_like(own, device=device)))
    return made


@path.stands_for
class SlimGLU(nn.Module):
    """A gated linear unit: vectors times an activation of an inner product, scalars times one of scalars.

    With linear maps ``v, a, b`` of vectors and ``s, g`` of scalars: ``f_v(<a, b> / 2) v`` and ``f(g) s``.

    Args:
        in_v_channels: vector channels of the input.
        out_v_channels: vector channels of the output.
        in_s_channels: scalar channels of the input.
        out_s_channels: scalar channels of the output.
        nonlinearity: ``f``: ``"relu"``, ``"sigmoid"``, ``"tanh"``, ``"gelu"`` (with tanh) or ``"silu"``.
        nonlinearity_v: ``f_v``; ``f`` for ``None``.
    """

    def __init__(
        self,
        in_v_channels: int,
        out_v_channels: int,
        in_s_channels: int,
        out_s_channels: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: str | None = "sigmoid",
        *,
        version: Version = V2,
    ) -> None:
        super().__init__()
        self.linear = SlimLinear(
            in_v_channels, 3 * out_v_channels, in_s_channels, 2 * out_s_channels, version=version
        )
        self.nonlinearity = version.activation(nonlinearity)
        self.nonlinearity_v = version.activation(nonlinearity_v or nonlinearity)
        self.gate_scale = version.gate_scale

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the unit to a network."""
        network.reads(self, "nonlinearity", "nonlinearity_v", "gate_scale")
        made = network.call(self.linear, x)
        each = made.channels[0] // 3, made.channels[1] // 2
        if made.channels != (3 * each[0], 2 * each[1]) or not all(each):
            raise Undescribed("a gated linear unit has no scalars, or maps of other channels")
        activations = self.nonlinearity_v, self.nonlinearity
        operator = glu_operator(activations, float(self.gate_scale))
        return network.apart(network.lanes(operator, made, each, (1, 1)), (made,))

    def forward(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        """From vectors ``[*batch, 4, in_v_channels]`` and scalars ``[*batch, in_s_channels]`` to ``out_v_channels``
        and ``out_s_channels``.
        """
        given = Given(inward((vectors, scalars)))
        # Under autocast the linear map of scalars has its type.
        if lowers(vectors):
            return outward(self._composed(given))
        return outward(run(self, SLIM, given, self._composed))

    def _composed(self, given: Given) -> Maybe:
        """The unit by the call of its linear maps, and operations that have derivatives of every order."""
        of_vectors, of_scalars = self.linear(*outward(given.here))
        before, left, right = of_vectors.chunk(3, dim=-1)
        before_s, gate_s = of_scalars.chunk(2, dim=-1)
        gate = ACTIVATIONS[self.nonlinearity_v](self._inner_products(left, right))
        gated = ACTIVATIONS[self.nonlinearity](gate_s) * before_s
        return inward((before * gate.unsqueeze(-2), gated))

    @in_float32
    def _inner_products(self, left: Tensor, right: Tensor) -> Tensor:
        inner = minkowski(left * right)
        return inner if self.gate_scale == 1 else self.gate_scale * inner


@path.stands_for
class SlimMLP(nn.Module):
    """Gated linear units, then a linear map.

    Args:
        v_channels: vector channels of input and output.
        s_channels: scalar channels of input and output.
        nonlinearity: of the gates of scalars, see :class:`SlimGLU`.
        nonlinearity_v: of the gates of vectors.
        mlp_ratio: hidden channels for each channel.
        num_layers: layers, at least 2.
        dropout_prob: probability of dropout after each unit.
    """

    def __init__(
        self,
        v_channels: int,
        s_channels: int,
        nonlinearity: str = "gelu",
        nonlinearity_v: str | None = "sigmoid",
        mlp_ratio: int = 2,
        num_layers: int = 2,
        dropout_prob: float | None = None,
        *,
        version: Version = V2,
    ) -> None:
        super().__init__()
        if check_features("num_layers", num_layers) < 2:
            raise ValueError(f"num_layers: expected at least 2, got {num_layers}")
        layers: list[nn.Module] = []
        here = v_channels, s_channels
        mlp_ratio = check_features("mlp_ratio", mlp_ratio)
        hidden = mlp_ratio * v_channels, mlp_ratio * s_channels
        for _ in range(num_layers - 1):
            unit = SlimGLU(
                here[0],
                hidden[0],
                here[1],
                hidden[1],
                nonlinearity,
                nonlinearity_v,
                version=version,
            )
            layers.append(unit)
            if dropout_prob is not None:
                layers.append(SlimDropout(dropout_prob))
            here = hidden
        layers.append(SlimLinear(here[0], v_channels, here[1], s_channels, version=version))
        self.layers = nn.ModuleList(layers)

    def describe(self, network: Description, x: Tokens) -> Tokens:
        """Adds the layers to a network."""
        return network.calls(self.layers, x)

    def forward(self, vectors: Tensor, scalars: Tensor) -> VectorsScalars:
        """Vectors ``[*batch, 4, v_channels]`` and scalars ``[*batch, s_channels]`` after the layers, in the same
        shapes.
        """
        for layer in self.layers:
            vectors, scalars = layer(vectors, scalars)
        return vectors, scalars
