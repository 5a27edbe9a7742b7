"""The network that makes steerable kernels of relative positions."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import ModuleList, Parameter

from ... import functional as F
from ..._ops import checks
from ..._order import blades_of, order_of
from ...algebra import Algebra
from .._module import check_features
from ._signature import SignatureLike, blade_indices, squares_of


class _Part(torch.nn.Module):
    """A part of the network. Multivectors are ``[blades, points, channels]`` in the order of the library's algebra."""

    def __init__(self, squares: tuple[int, ...]) -> None:
        super().__init__()
        self._order = order_of(tuple(map(float, squares)))
        self._algebra = Algebra(*self._order.signature)


class KernelLinear(_Part):
    """A linear map of channels with a matrix for each grade, and a bias on some blades.

    Shapes:
        - input ``[blades, points, in]``, output ``[blades, points, out]``
        - ``weight`` ``[out, in, grades]``; ``bias`` ``[1, out, bias_dims]``, if ``bias_dims`` are given
    """

    def __init__(
        self,
        squares: tuple[int, ...],
        in_features: int,
        out_features: int,
        bias_dims: tuple[int, ...] | None,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(squares)
        self.bias_dims = bias_dims
        shape = out_features, in_features, self._algebra.grade_count
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        if bias_dims is None:
            self.register_parameter("bias", None)
        else:
            shape = 1, out_features, len(bias_dims)
            self.bias = Parameter(torch.empty(shape, device=device, dtype=dtype))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters."""
        std = 1 / math.sqrt(self.weight.shape[1])
        torch.nn.init.normal_(self.weight, std=std)
        if self.bias is not None:
            torch.nn.init.normal_(self.bias, std=0.1 * std)

    def forward(self, x: Tensor) -> Tensor:
        """From ``[blades, points, in]`` to ``[blades, points, out]``."""
        out = F.mv_linear(x, self.weight, None, algebra=self._algebra)
        if self.bias is None:
            return out
        parts = list(out.unbind())
        assert self.bias_dims is not None
        for at, blade in enumerate(self.bias_dims):
            place, sign = self._order.places[blade], self._order.signs[blade]
            parts[place] = parts[place] + sign * self.bias[0, :, at]
        return torch.stack(parts)


class KernelNorm(_Part):
    """Divides each grade by its length, as far as a learned number says: CS-CNN's ``GradeNorm``.

    ``y_g = x_g / (sigmoid(factor_g) (|x_g| - 1) + 1 + 1e-6)`` with ``|x| = (max(q(x), 0.01)^2 + 1e-16)^(1/4)``.
    :class:`flashcliff.nn.GradeNorm` has no bound below.

    Shapes:
        - input and output ``[blades, points, features]``
        - ``factor`` ``[1, features, grades]``, starts at 0
    """

    def __init__(
        self,
        squares: tuple[int, ...],
        features: int,
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(squares)
        shape = 1, features, self._algebra.grade_count
        self.factor = Parameter(torch.zeros(shape, device=device, dtype=dtype))
        # In the order of the library's algebra.
        self._forms = _forms(tuple(sorted(squares, key=(0, 1, -1).index)))

    def reset_parameters(self) -> None:
        """Sets the factors to 0."""
        torch.nn.init.zeros_(self.factor)

    def forward(self, x: Tensor) -> Tensor:
        """``[blades, points, features]``, normed, in the same shape."""
        done, parts = 0, []
        share = torch.sigmoid(self.factor)
        for grade, signs in enumerate(self._forms):
            own = x[done : done + len(signs)]
            done += len(signs)
            squares = own.square()
            # Signs are 1, -1 and 0, so a sum of a few terms needs no table.
            form = sum(
                (sign * square for sign, square in zip(signs, squares) if sign),
                torch.zeros_like(squares[0]),
            )
            length = (form.clamp(min=0.01).square() + 1e-16) ** 0.25
            parts.append(own / (share[..., grade] * (length - 1) + 1 + 1e-6))
        return torch.cat(parts)


class KernelProduct(_Part):
    """Products of channels with normed linear maps of them, summed over channels, and a linear map.

    ``y = (linear_left(x) + sum over n and paths of weight x[n] normalization(linear_right(x))[n]) / sqrt 2``

    Shapes:
        - input ``[blades, points, in]``, output ``[blades, points, out]``
        - ``weight`` ``[out, in, paths]``
    """

    def __init__(
        self,
        squares: tuple[int, ...],
        in_features: int,
        out_features: int,
        bias_dims: tuple[int, ...],
        device: torch.device | str | None,
        dtype: torch.dtype | None,
    ) -> None:
        super().__init__(squares)
        shape = out_features, in_features, self._algebra.path_count
        self.weight = Parameter(torch.empty(shape, device=device, dtype=dtype))
        sizes = in_features, in_features
        self.linear_right = KernelLinear(squares, *sizes, None, device, dtype)
        self.normalization = KernelNorm(squares, in_features, device, dtype)
        sizes = in_features, out_features
        self.linear_left = KernelLinear(squares, *sizes, bias_dims, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the weight."""
        fan = self.weight.shape[1] * self._algebra.grade_count
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(fan))

    def forward(self, x: Tensor) -> Tensor:
        """From ``[blades, points, in]`` to ``[blades, points, out]``."""
        right = self.normalization(self.linear_right(x))
        weight = self.weight.permute(2, 1, 0).contiguous()
        product = F.fcgp_norm(x, right, weight, self._algebra, gate="none", norm="none")
        left: Tensor = self.linear_left(x)
        return (left + product) / math.sqrt(2)


class KernelNetwork(_Part):
    """A multivector for each pair of channels and each point: CS-CNN's network of implicit kernels.

    ``num_layers`` layers of products; between them CS-CNN's norm and the gate of the tanh form of GELU. It is made of this library's
    operators, and it commutes with the orthogonal transformations of the signature if ``bias_dims`` is ``(0,)``.

    Shapes:
        - input ``[blades, points, 1]``, output ``[blades, points, out_features]``, blades in the order of the library's algebra
        - ``products.0`` ...: each with ``weight`` ``[out, in, paths]``, ``linear_right``, ``normalization`` and ``linear_left``;
          ``norms.0`` ...

    Args:
        g: the square of each vector.
        out_features: how many multivectors a point gets.
        num_layers: layers of products, at least 2.
        hidden_dim: channels between them.
        bias_dims: the blades that have a bias, by index in the order of ``g``.

    Source: CS-CNN's ``KernelNetwork`` (Zhdanov et al., "Clifford-steerable convolutional neural networks", arXiv 2402.14730, appendix A).

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> network = convolution.KernelNetwork((1, 1), 6)
        >>> network(torch.randn(4, 9, 1)).shape
        torch.Size([4, 9, 6])
    """

    def __init__(
        self,
        g: SignatureLike,
        out_features: int,
        num_layers: int = 4,
        hidden_dim: int = 12,
        bias_dims: tuple[int, ...] = (0,),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        squares = squares_of("g", g)
        super().__init__(squares)
        out_features = check_features("out_features", out_features)
        hidden = check_features("hidden_dim", hidden_dim)
        if check_features("num_layers", num_layers) < 2:
            raise ValueError(f"num_layers: expected at least 2, got {num_layers}")
        blades = blade_indices("bias_dims", squares, checks.integers("bias_dims", bias_dims))
        sizes = [1, *[hidden] * (num_layers - 1), out_features]
        self.products = ModuleList(
            KernelProduct(squares, start, end, blades, device, dtype)
            for start, end in zip(sizes[:-1], sizes[1:])
        )
        self.norms = ModuleList(
            KernelNorm(squares, hidden, device, dtype) for _ in range(num_layers - 1)
        )

    def forward(self, x: Tensor) -> Tensor:
        """From ``[blades, points, 1]`` to ``[blades, points, out_features]``."""
        *hidden, last = self.products
        for product, norm in zip(hidden, self.norms, strict=True):
            x = F.gate(norm(product(x)), self._algebra, gate="gelu_tanh")
        out: Tensor = last(x)
        return out


def _forms(squares: tuple[int, ...]) -> tuple[tuple[int, ...], ...]:
    """The square of each blade of each grade under the extended quadratic form: the product of the squares of its vectors."""
    found: list[list[int]] = [[] for _ in range(len(squares) + 1)]
    for blade in blades_of(len(squares)):
        found[len(blade)].append(math.prod(squares[vector] for vector in blade))
    return tuple(map(tuple, found))
