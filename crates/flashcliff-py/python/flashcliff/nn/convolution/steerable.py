"""Clifford-steerable convolutions."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import Parameter

from ..._ops import checks
from ..._ops.kept import beside, for_later_calls
from ..._ops.marks import kept_constant
from ..._order import blades_of
from .._module import check_features, joined
from ._checks import check_field, check_type
from ._kept import KernelLayer
from ._layout import memory_format_of, to_blades, to_channels
from ._signature import SignatureLike, blade_indices, products_of, squares_of
from ._window import CONVOLUTIONS
from .kernel_network import KernelNetwork

_MODES = {
    "constant": "constant",
    "zeros": "constant",
    "wrap": "circular",
    "circular": "circular",
    "reflect": "reflect",
    "edge": "replicate",
    "replicate": "replicate",
}
"""NumPy's names and PyTorch's for what is beside the grid, and the name that ``torch.nn.functional.pad`` has."""

class CliffordSteerableKernel(torch.nn.Module):
    """The kernel of :class:`CliffordSteerableConv`: a network of relative positions, a mask, and a head that makes matrices.

    A point ``v`` of the window is ``index - kernel_size // 2`` over ``max(kernel_size // 2, 1)`` on each axis.
    ``shell(v, s) = sign(q(v)) exp(-|q(v)| / (2 s^2))`` with the quadratic form ``q`` of the signature. With ``k = network(shell(v,
    rel_pos_sigma) + v)``, one multivector for each pair of channels,

    | ``k'[o, i]_g = 20 / kernel_size^(dim - 1) shell(v, kernel_width[o, i, g] + 0.4) k[o, i]_g``
    | ``y[o] = sum over i and paths of weight[o, i, path] <<k'[o, i]>_a <x[i]>_b>_path``

    The head writes these products as one matrix for each point, each entry from one blade of ``k'`` and one weight.

    Shapes:
        - result ``[blades * out_channels, blades * in_channels, *kernel]``, channels of a blade together
        - ``rel_pos_sigma`` ``[1, 1, 1]``, starts at 1; ``kernel_width`` ``[out_channels, in_channels, grades]``, starts uniform from 0 to
          0.2
        - ``weight`` ``[out_channels, in_channels, paths]``, starts normal, std ``1 / sqrt(in_channels (dim + 1))``
        - ``network``: :class:`KernelNetwork` of ``out_channels * in_channels`` multivectors

    Args:
        g: the square of each vector; the grid has as many axes.
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the window, the same on all axes. An even one is not symmetric, so a layer with it commutes with translations alone.
        num_layers: layers of the network.
        hidden_dim: channels between them.
        bias_dims: the blades that have a bias within the network.

    Source: CS-CNN's ``CliffordSteerableKernel`` (arXiv 2402.14730, appendix A, functions 1 and 2).

    Example:
        >>> from flashcliff.nn import convolution
        >>> convolution.CliffordSteerableKernel((1, 1), 2, 3, kernel_size=5)().shape
        torch.Size([12, 8, 5, 5])
    """

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        num_layers: int = 4,
        hidden_dim: int = 12,
        bias_dims: tuple[int, ...] = (0,),
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.squares = squares_of("g", g)
        self.in_channels = check_features("in_channels", in_channels)
        self.out_channels = check_features("out_channels", out_channels)
        self.kernel_size = check_features("kernel_size", kernel_size)
        sizes = self.out_channels, self.in_channels
        self.network = KernelNetwork(
            self.squares,
            math.prod(sizes),
            num_layers,
            hidden_dim,
            bias_dims,
            device=device,
            dtype=dtype,
        )

        def empty(*shape: int) -> Parameter:
            return Parameter(torch.empty(shape, device=device, dtype=dtype))

        self._grades = tuple(map(len, blades_of(len(self.squares))))
        self.rel_pos_sigma = empty(1, 1, 1)
        self.kernel_width = empty(*sizes, len(self.squares) + 1)
        self.weight = empty(*sizes, self.network._algebra.path_count)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draws the parameters of the mask and of the head; the network keeps its parameters."""
        torch.nn.init.ones_(self.rel_pos_sigma)
        torch.nn.init.uniform_(self.kernel_width, 0, 0.2)
        fan = self.in_channels * (len(self.squares) + 1)
        torch.nn.init.normal_(self.weight, std=1 / math.sqrt(fan))

    def forward(self) -> Tensor:
        """The kernel, ``[blades * out_channels, blades * in_channels, *kernel]``. It has gradients of every order."""
        like = self.weight
        if like.dtype not in (torch.float32, torch.float64):
            raise TypeError(
                f"CliffordSteerableKernel: expected parameters of float32 or float64, got {like.dtype}; call `float()`, and use autocast"
            )
        kept = _grid(self.squares, self.kernel_size, like.dtype, like.device)
        points, forms = (beside(table, like) for table in kept)
        order = self.network._order
        # The network reads blades in the order of the library's algebra.
        parts = [_shell(forms.unsqueeze(-1), self.rel_pos_sigma.view(1, 1))]
        parts += [points[:, order.vectors.index(at), None] for at in range(len(self.squares))]
        zero = torch.zeros_like(parts[0])
        count = 1 << len(self.squares)
        given = torch.stack([*parts, *[zero] * (count - len(parts))])
        made = self.network(given).unflatten(-1, (self.out_channels, self.in_channels))
        factor = 20 / self.kernel_size ** (len(self.squares) - 1)
        width = (self.kernel_width + 0.4).movedim(-1, 0).unsqueeze(1)
        mask = _shell(forms.view(1, -1, 1, 1), width) * factor
        k = [
            order.signs[at] * made[order.places[at]] * mask[grade]
            for at, grade in enumerate(self._grades)
        ]
        return self._head(torch.stack(k))

    def _head(self, k: Tensor) -> Tensor:
        """The kernel of products with ``k`` ``[blades, points, out, in]`` from the left."""
        kept = _head_tables(self.squares, self.network._algebra.paths, k.dtype, k.device)
        paths, places = (beside(table, k) for table in kept)
        count = len(k)
        # The coefficient of each pair of a blade of `k` and one of the result, `[k, result, 1, out, in]`.
        coefficients = torch.tensordot(paths, self.weight.movedim(-1, 0), dims=1).unsqueeze(2)
        products = k.unsqueeze(1) * coefficients
        blocks = products.flatten(0, 1).index_select(0, places)
        # [results, inputs, points, out, in]
        blocks = blocks.view(count, count, *k.shape[1:]).permute(0, 3, 1, 4, 2)
        window = (self.kernel_size,) * len(self.squares)
        return blocks.reshape(count * self.out_channels, count * self.in_channels, *window)

    def extra_repr(self) -> str:
        return f"{self.squares}, {self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"


class CliffordSteerableConv(KernelLayer):
    """A convolution of multivectors that commutes with the isometries of the grid: rotations, and reflections too.

    The kernel at each point of the window is made by a network that commutes with the orthogonal transformations of the signature
    (:class:`CliffordSteerableKernel`). A field that is turned, both its places and its multivectors, gives the turned result.

    The kernel is computed by operators of this library and a head of PyTorch operations. The convolution is PyTorch's, which on GPUs is
    a cuDNN call, with ``blades * channels`` channels. Nothing else is fused. In calls that need no gradient of the parameters the kernel is
    kept until a version counter of a parameter changes, as that of :class:`CliffordConv2d`.

    Shapes:
        - input ``[batch, in_channels, *space, blades]``, output ``[batch, out_channels, *space', blades]``
        - ``kernel``: :class:`CliffordSteerableKernel`
        - ``bias`` ``[1, out_channels, *ones, bias_dims]``, starts at 0

    Args:
        g: the square of each vector, such as ``(1, 1)`` for the plane or ``(-1, 1, 1)`` for time and a plane; the grid has as many axes,
            1 to 3.
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the window, the same on all axes; odd, for symmetry.
        bias_dims: the blades that have a bias, by index. ``(0,)`` is the scalar; others break the symmetry.
        num_layers: layers of the kernel network.
        hidden_dim: channels between them.
        padding: whether space is padded by ``(kernel_size - 1) // 2``, for all modes but ``"SAME"``.
        stride: the step of the window.
        bias: whether there is a bias after the convolution.
        padding_mode: ``"SAME"``: zeros, as many as give ``ceil(size / stride)`` places. Or what is beside the grid: ``"zeros"``,
            ``"circular"``, ``"reflect"``, ``"replicate"``, or NumPy's names ``"constant"``, ``"wrap"``, ``"edge"``.

    Raises:
        ValueError: a size, a shape, a name or a signature that does not fit.
        TypeError: an element type, or an option of another kind.

    - Types: float32 and float64. Under autocast the kernel is made in the type of the weights and then cast.
    - Deterministic: as the matrix products of the kernel network and PyTorch's convolution are.
    - Derivatives: every order.
    - Commutes with: translations of the grid; for an odd window, a stride of 1 and ``bias_dims=(0,)`` the transformations of space that
      map the grid to itself, which are turns by 90 degrees between axes of one sign and reflections of axes. Between grid points the
      symmetry is as good as the sampling.
    - Source: CS-CNN's ``CliffordSteerableConv`` (arXiv 2402.14730, section 3, function 3). :func:`from_flax` has its parameters under the
      names here.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordSteerableConv((1, 1), 2, 3, kernel_size=5, padding_mode="circular")
        >>> layer(torch.randn(4, 2, 16, 16, 4)).shape
        torch.Size([4, 3, 16, 16, 4])
    """

    kernel: CliffordSteerableKernel

    def __init__(
        self,
        g: SignatureLike,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        bias_dims: tuple[int, ...] = (0,),
        num_layers: int = 4,
        hidden_dim: int = 12,
        padding: bool = True,
        stride: int = 1,
        bias: bool = True,
        padding_mode: str = "SAME",
        *,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        self.squares = squares_of("g", g)
        axes = len(self.squares)
        if axes > 3:
            raise ValueError(
                f"g: expected 1 to 3 squares of vectors, one for each axis, got {self.squares}"
            )
        sizes = in_channels, out_channels, kernel_size, num_layers, hidden_dim
        self.kernel = CliffordSteerableKernel(
            self.squares, *sizes, bias_dims, device=device, dtype=dtype
        )
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size = kernel_size
        self.bias_dims = blade_indices("bias_dims", self.squares, tuple(bias_dims))
        self.padding = checks.flag("padding", padding)
        self.stride = check_features("stride", stride)
        self.padding_mode = checks.word("padding_mode", padding_mode)
        if self.padding_mode.upper() != "SAME" and self.padding_mode not in _MODES:
            names = ", ".join(('"SAME"', *(f'"{name}"' for name in _MODES)))
            raise ValueError(f"padding_mode: expected one of {names}, got {padding_mode!r}")
        if checks.flag("bias", bias):
            shape = 1, out_channels, *[1] * axes, len(self.bias_dims)
            self.bias = Parameter(torch.zeros(shape, device=device, dtype=dtype))
        else:
            self.register_parameter("bias", None)

    def reset_parameters(self) -> None:
        """Sets the bias to 0; the parameters of the kernel stay."""
        if self.bias is not None:
            torch.nn.init.zeros_(self.bias)

    def forward(self, x: Tensor) -> Tensor:
        """From ``x`` ``[batch, in_channels, *space, blades]`` to ``[batch, out_channels, *space', blades]``.

        Raises:
            ValueError: another shape.
            TypeError: another element type than the parameters have, without autocast.
            RuntimeError: ``x`` is on another device than the parameters.
            flashcliff.UnsupportedError: a sparse or nested tensor.
        """
        axes, blades = len(self.squares), 1 << len(self.squares)
        name = "CliffordSteerableConv"
        check_field(name, x, axes, self.in_channels, blades)
        check_type(name, x, self.kernel.weight)
        channels = to_channels(x)
        kernel = self._kernel_for(
            x.device.type,
            list(self.kernel.parameters()),
            self.kernel.weight.dtype,
            memory_format_of(channels),
        )
        padded = self._padded(channels)
        convolve = CONVOLUTIONS[axes]
        return to_blades(convolve(padded, kernel, self._bias(), self.stride), blades)

    def _bias(self) -> Tensor | None:
        """The bias of real channels."""
        if self.bias is None:
            return None
        own = self.bias.view(self.out_channels, len(self.bias_dims)).unbind(-1)
        parts = [torch.zeros_like(own[0])] * (1 << len(self.squares))
        for part, blade in zip(own, self.bias_dims):
            parts[blade] = part
        return torch.cat(parts)

    def _padded(self, channels: Tensor) -> Tensor:
        """The input with what is beside the grid."""
        pads: list[int] = []
        if self.padding_mode.upper() == "SAME":
            mode = "constant"
            for size in reversed(channels.shape[2:]):
                places = -(-size // self.stride)
                total = max((places - 1) * self.stride + self.kernel_size - size, 0)
                pads += [total // 2, total - total // 2]
        elif self.padding:
            mode = _MODES[self.padding_mode]
            pads = [(self.kernel_size - 1) // 2] * (2 * len(self.squares))
        if not any(pads):
            return channels
        return torch.nn.functional.pad(channels, pads, mode)

    def extra_repr(self) -> str:
        return joined(
            f"{self.squares}, {self.in_channels}, {self.out_channels}",
            f"kernel_size={self.kernel_size}, stride={self.stride}",
            f"padding_mode={self.padding_mode!r}",
            "" if self.padding else "padding=False",
            "" if self.bias is not None else "bias=False",
            "" if self.bias_dims == (0,) else f"bias_dims={self.bias_dims}",
        )


def _shell(form: Tensor, width: Tensor) -> Tensor:
    """``sign(q) exp(-|q| / (2 width^2))`` with the sign 1 at 0."""
    sign = torch.where(form >= 0, 1.0, -1.0).to(form.dtype)
    return sign * torch.exp(-form.abs() / (2 * width.square()))


@kept_constant
def _grid(
    squares: tuple[int, ...], size: int, dtype: torch.dtype, device: torch.device
) -> tuple[Tensor, Tensor]:
    """The points of the window ``[points, vectors]``, and their squares ``[points]``."""
    with for_later_calls():
        axis = (torch.arange(size, dtype=torch.float64) - size // 2) / max(size // 2, 1)
        points = torch.cartesian_prod(*[axis] * len(squares)).view(-1, len(squares))
        forms = points.square() @ torch.tensor(squares, dtype=torch.float64)
        return points.to(device, dtype), forms.to(device, dtype)


@kept_constant
def _head_tables(
    squares: tuple[int, ...],
    paths: tuple[tuple[int, int, int], ...],
    dtype: torch.dtype,
    device: torch.device,
) -> tuple[Tensor, Tensor]:
    """The factors of products of a blade of the kernel's multivector and a blade of the input, ``[blades, results, paths]``; and the place
    of each entry of the matrix among these pairs, ``[results * inputs]``."""
    blades = blades_of(len(squares))
    count = len(blades)
    index = {path: at for at, path in enumerate(paths)}
    with for_later_calls():
        signs = torch.zeros(count, count, len(paths), dtype=dtype)
        source: dict[tuple[int, int], int] = {}
        for (left, right), (output, sign) in products_of(squares).items():
            path = len(blades[left]), len(blades[output]), len(blades[right])
            signs[left, output, index[path]] = sign
            source[output, right] = left
        places = []
        for output in range(count):
            row = [source.get((output, right)) for right in range(count)]
            # Products that are zero take blades that are left, as in the expansion.
            left_over = iter(sorted(set(range(count)) - set(row)))
            places += [(next(left_over) if left is None else left) * count + output for left in row]
        return signs.to(device), torch.tensor(places, device=device)
