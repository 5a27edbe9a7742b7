"""Linear maps by learned motions, and their gates."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn import Parameter

from ..._ops import checks
from ..._ops.checks import choice
from ...algebra import Algebra, AlgebraLike, as_algebra
from ...rotors import action
from ...rotors._checks import check_kind
from .._module import check_choice, check_features
from ._signature import blade_indices

_MOTORS = (0, 5, 6, 7, 8, 9, 10, 15)
"""The blades of motors: 1, bivectors, and the product of all vectors."""
_ROTATION = (0, 8, 9, 10)
"""The blades of rotations about the origin."""
_WEIGHT = 14
"""The blade ``e123``, which is the weight of a point."""
AGGREGATIONS = ("linear", "sum", "mean")


class PGAConjugateLinear(torch.nn.Module):
    """A linear map of channels by learned motions of space: one versor for each pair of channels.

    ``y[o] = sum over i of weight[o, i] a[o, i] x[i] reverse(a[o, i])`` over Cl(3, 0, 1), where ``e123`` of ``x[i]`` is ``embed_e0[i]``,
    whatever the input holds there. It is :func:`flashcliff.rotors.action`: one matrix product, whose matrix is formed from the versors
    and weights. Nothing else is fused.

    Shapes:
        - input ``[*batch, in_features, input_blades]``, output ``[*batch, out_features, input_blades]``
        - ``_action`` ``[out_features, in_features, action_blades]``: rotations at random, normed, without a translation
        - ``weight`` ``[out_features, in_features]``, starts uniform within ``1 / sqrt(in_features)``
        - ``embed_e0`` ``[in_features, 1]``, starts at 0

    Args:
        in_features: channels of the input.
        out_features: channels of the output.
        algebra: ``flashcliff.Algebra(3, 0, 1)``, or an object whose ``metric`` is (0, 1, 1, 1), such as cliffordlayers' algebra.
        input_blades: the blades that the input carries, by index, such as ``(11, 12, 13)`` for points.
        action_blades: the blades of the versors, all of them even.

    Raises:
        ValueError: a size, a shape, blades or an algebra that does not fit.
        TypeError: an element type, or an option of another kind.

    - Types: the types of PyTorch's matrix product.
    - Deterministic: as PyTorch's matrix products are.
    - Derivatives: every order.
    - Commutes with: no transformation: the versors are given in the axes of space. If all versors are powers of one motion,
      it commutes with that motion.
    - Source: cliffordlayers' layer of the same name (Ruhe et al., "Geometric Clifford algebra networks", arXiv 2302.06594, section 3),
      with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.PGAConjugateLinear(4, 8, (3, 0, 1), input_blades=(11, 12, 13))
        >>> layer(torch.randn(32, 4, 3)).shape
        torch.Size([32, 8, 3])
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        algebra: AlgebraLike | Any,
        input_blades: tuple[int, ...],
        action_blades: tuple[int, ...] = _MOTORS,
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.in_features = check_features("in_features", in_features)
        self.out_features = check_features("out_features", out_features)
        self.algebra = _projective(algebra)
        self.input_blades = _blades("input_blades", input_blades)
        self.action_blades = _blades("action_blades", action_blades)
        self.n_action_blades = len(self.action_blades)
        if not set(self.action_blades) <= set(_MOTORS):
            raise ValueError(
                f"action_blades: expected blades of {_MOTORS}, got {self.action_blades}"
            )
        if not set(self.action_blades) & set(_ROTATION):
            raise ValueError(
                f"action_blades: expected one of {_ROTATION}, of which versors get their length, got {self.action_blades}"
            )
        # A versor keeps grades but for the first and the last, which an element that is not one mixes.
        carried = {self.algebra.grades[blade] for blade in (*self.input_blades, _WEIGHT)}
        self._grades = tuple(sorted(carried))
        held = self.algebra.blades_of(self._grades)
        self._sources = tuple(held.index(blade) for blade in self.input_blades)
        self._weight_at = held.index(_WEIGHT)
        self._count = len(held)
        sizes = self.out_features, self.in_features

        def empty(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        self._action = empty(*sizes, self.n_action_blades)
        self.weight = empty(*sizes)
        self.embed_e0 = Parameter(torch.zeros(self.in_features, 1, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws rotations and weights."""
        with torch.no_grad():
            self._action.zero_()
            places = [at for at, blade in enumerate(self.action_blades) if blade in _ROTATION]
            # The scalar is drawn first, and then the others together, as in cliffordlayers.
            for part in (places[:1], places[1:]):
                drawn = torch.empty_like(self._action[..., part]).uniform_(-1, 1)
                self._action[..., part] = drawn
            squares = self._action[..., places].square().sum(-1)
            self._action.div_(squares.sqrt().unsqueeze(-1))
            self.embed_e0.zero_()
        bound = 1 / math.sqrt(self.in_features)
        torch.nn.init.uniform_(self.weight, -bound, bound)

    @property
    def action(self) -> Tensor:
        """The versors with all blades, ``[out_features, in_features, 16]``."""
        return _spread(self._action, self.action_blades, 16)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[*batch, in_features, input_blades]`` to ``[*batch, out_features, input_blades]``.

        Raises:
            ValueError: another shape.
            TypeError: another element type than the weight has, without autocast.
            RuntimeError: ``x`` is on another device than the weight.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        name = "PGAConjugateLinear"
        check_kind(name, "x", x)
        if x.dim() < 2 or x.shape[-2:] != (self.in_features, len(self.input_blades)):
            raise ValueError(
                f"{name}: `x` must be [*batch, {self.in_features}, {len(self.input_blades)}], the blades {self.input_blades} last, got "
                f"{list(x.shape)}"
            )
        # In rows of one blade: the weight of points, and zeros for blades that the input does not carry.
        parts: list[Tensor] = [torch.zeros_like(x[..., 0])] * self._count
        for at, source in enumerate(self._sources):
            parts[source] = x[..., at]
        parts[self._weight_at] = self.embed_e0[:, 0].to(x.dtype).expand_as(x[..., 0])
        places = [_MOTORS.index(blade) for blade in self.action_blades]
        versors = _spread(self._action, tuple(places), len(_MOTORS)).movedim(-1, 0)
        out = action(torch.stack(parts), versors, self.weight, self.algebra, grades=self._grades)
        return torch.stack([out[source] for source in self._sources], dim=-1)

    def extra_repr(self) -> str:
        return f"{self.in_features}, {self.out_features}, input_blades={self.input_blades}, action_blades={self.action_blades}"


class MultiVectorAct(torch.nn.Module):
    """Multiplies multivectors by the sigmoid of a weighted sum, the sum or the mean of some of their blades.

    ``y[c] = x[c] sigmoid(bias[c] + sum over k of weight[c, k] x[c, k])`` for ``"linear"``, with ``k`` over ``kernel_blades``. Blades that
    the input does not carry count as 0, in the mean too.

    Shapes:
        - input and output ``[*batch, channels, input_blades]``
        - for ``"linear"`` ``conv.weight`` ``[channels, 1, kernel_blades]`` and ``conv.bias`` ``[channels]``; they start as in
          ``torch.nn.Conv1d``

    Args:
        channels: channels of the input.
        algebra: such as ``flashcliff.Algebra(3, 0, 1)``, or an object with ``n_blades``, such as cliffordlayers' algebra.
        input_blades: the blades that the input carries, by index.
        kernel_blades: the blades that the gate reads; the blades of the input by default.
        agg: ``"linear"``, ``"sum"`` or ``"mean"``.

    Raises:
        ValueError: a size, a shape, a name or blades that do not fit.
        TypeError: an element type, or an option of another kind.

    - Commutes with: transformations that leave the blades alone which the gate reads. :class:`flashcliff.nn.MVGate` commutes with all
      versors.
    - Source: cliffordlayers' layer of the same name (arXiv 2302.06594, section 3), with the names of its state dict.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.MultiVectorAct(8, (3, 0, 1), input_blades=(11, 12, 13))
        >>> layer(torch.randn(32, 8, 3)).shape
        torch.Size([32, 8, 3])
    """

    def __init__(
        self,
        channels: int,
        algebra: AlgebraLike | Any,
        input_blades: tuple[int, ...],
        kernel_blades: tuple[int, ...] | None = None,
        agg: str = "linear",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.channels = check_features("channels", channels)
        self.algebra = algebra
        dim = _dim_of(algebra)
        self.input_blades = blade_indices(
            "input_blades", (0,) * dim, checks.integers("input_blades", input_blades)
        )
        given = self.input_blades
        if kernel_blades is not None:
            given = checks.integers("kernel_blades", kernel_blades)
        self.kernel_blades = blade_indices("kernel_blades", (0,) * dim, given)
        self.agg = check_choice("agg", choice("agg", agg), AGGREGATIONS)
        if self.agg == "linear":
            options: dict[str, Any] = {"device": device, "dtype": dtype}
            width = len(self.kernel_blades)
            # The names of its parameters are used, and how they start; it is not called.
            self.conv = torch.nn.Conv1d(channels, channels, width, groups=channels, **options)

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[*batch, channels, input_blades]``, gated, in the same shape.

        Raises:
            ValueError: another shape.
            TypeError: ``x`` has no real floating-point elements.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        check_kind("MultiVectorAct", "x", x)
        if x.dim() < 2 or x.shape[-2:] != (self.channels, len(self.input_blades)):
            raise ValueError(
                f"MultiVectorAct: `x` must be [*batch, {self.channels}, {len(self.input_blades)}], the blades {self.input_blades} last, "
                f"got {list(x.shape)}"
            )
        read = [
            (at, blade) for at, blade in enumerate(self.kernel_blades) if blade in self.input_blades
        ]
        own = x[..., [self.input_blades.index(blade) for _, blade in read]]
        if self.agg == "linear":
            weight, bias = self.conv.weight[:, 0, [at for at, _ in read]], self.conv.bias
            assert bias is not None
            sums = (own * weight).sum(-1, keepdim=True) + bias.unsqueeze(-1)
        else:
            sums = own.sum(-1, keepdim=True)
            if self.agg == "mean":
                sums = sums / len(self.kernel_blades)
        return x * torch.sigmoid(sums)

    def extra_repr(self) -> str:
        return f"{self.channels}, input_blades={self.input_blades}, kernel_blades={self.kernel_blades}, agg={self.agg!r}"


def _spread(x: Tensor, places: tuple[int, ...], count: int) -> Tensor:
    """Puts the last axis at places of a longer one, beside zeros."""
    zero = torch.zeros_like(x[..., 0])
    parts = [zero] * count
    for at, place in enumerate(places):
        parts[place] = x[..., at]
    return torch.stack(parts, dim=-1)


def _blades(name: str, blades: Any) -> tuple[int, ...]:
    return blade_indices(name, (0, 1, 1, 1), checks.integers(name, blades))


def _projective(algebra: Any) -> Algebra:
    """Cl(3, 0, 1), if something stands for it."""
    metric = getattr(algebra, "metric", None)
    if isinstance(metric, Tensor) and not hasattr(algebra, "flashcliff_algebra"):
        found = tuple(metric.tolist())
        fits = found == (0, 1, 1, 1)
    else:
        own = as_algebra(algebra)
        found, fits = own.signature, own.signature == (3, 0, 1)
    if not fits:
        raise ValueError(
            f"algebra: expected Algebra(3, 0, 1), with the metric (0, 1, 1, 1), got {found}"
        )
    return Algebra(3, 0, 1)


def _dim_of(algebra: Any) -> int:
    """How many vectors an algebra has."""
    blades = getattr(algebra, "n_blades", None)
    if isinstance(blades, int) and not hasattr(algebra, "flashcliff_algebra"):
        return blades.bit_length() - 1
    return as_algebra(algebra).dim
