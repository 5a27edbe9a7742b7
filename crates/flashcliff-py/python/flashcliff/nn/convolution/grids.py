"""Clifford convolutions on lines, planes and volumes."""

from __future__ import annotations

from ._conv import CliffordConv


class CliffordConv1d(CliffordConv):
    """A convolution of multivectors on a line, as :class:`CliffordConv2d` on a plane.

    Shapes:
        - input ``[batch, in_channels, width, blades]``, output ``[batch, out_channels, width', blades]``
        - ``weight.0`` ... one for each blade, ``[out_channels, in_channels / groups, kernel]``; ``bias`` ``[blades, out_channels]``

    Args, types, errors, symmetries and source: as for :class:`CliffordConv2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv1d((-1,), 4, 8, kernel_size=3, padding=1)
        >>> layer(torch.randn(2, 4, 32, 2)).shape
        torch.Size([2, 8, 32, 2])
    """

    axes = 1


class CliffordConv2d(CliffordConv):
    r"""A convolution of multivectors on a plane: geometric products with weights on the right, summed over a window.

    ``y[o](s) = bias[o] + sum over channels i and places t of x[i](stride s + dilation t - padding) * weight[o, i](t)``

    The layer is one real PyTorch convolution, which on GPUs is a cuDNN call, with ``blades * channels`` channels. Its kernel is expanded
    from the weights by the sign table of the signature. Nothing else is fused: a norm or a gate is a separate pass. In calls that need no
    gradient of the weights the expanded kernel is kept until a version counter of a weight changes. Writes through ``weight.data`` are not
    counted; call ``eval()`` or ``train()`` after them.

    Shapes:
        - input ``[batch, in_channels, height, width, in_blades]``, output ``[batch, out_channels, height', width', out_blades]``. The
          output is a view whose blades are not last in memory; between convolutions and pointwise functions nothing is copied
        - ``weight.0`` ... one for each blade, ``[out_channels, in_channels / groups, *kernel]``; they start uniform within
          ``1 / sqrt(blades in_channels / groups prod(kernel))``
        - ``bias`` ``[out_blades, out_channels]``, starts likewise
        - with ``rotation`` also ``weight.4``, which is ``scale_param`` too, and ``weight.5``, which is ``zero_kernel`` and is not trained
        - ``g`` ``[vectors]``, a buffer

    Args:
        g: the square of each vector, 1, -1 or 0, such as ``(1, 1)``; 1 to 8 of them. An :class:`flashcliff.Algebra` stands for its squares,
            null vectors first, then positive, then negative. The grid may have another number of axes.
        in_channels: channels of the input.
        out_channels: channels of the output.
        kernel_size: the window, one number or one for each axis.
        stride: the step of the window.
        padding: what is added before and after each axis: one number, one for each axis, ``"same"`` or ``"valid"``.
        dilation: the step between the places of the window.
        groups: channels are split into so many groups that do not see each other.
        bias: whether each output channel has a multivector that is added to it.
        padding_mode: ``"zeros"``, ``"circular"`` (periodic), ``"reflect"`` or ``"replicate"``.
        rotation: the four weights are a quaternion that turns the three blades ``e1, e2, e12`` and multiplies the scalar, over
            ``g = (-1, -1)`` alone.
        in_blades: the blades that the input carries, by index; all by default.
        out_blades: the blades that the output carries.

    Raises:
        ValueError: a size, a shape, a signature or blades that do not fit.
        TypeError: an element type, or an option of another kind.

    - Types: as in PyTorch's convolution. Under autocast the kernel is expanded in the type of the weights and then cast. A state dict
      with another signature is a ``RuntimeError``.
    - Memory: an input whose channels are last in memory (``x.to(memory_format=torch.channels_last_3d)``) gives an output of that kind.
    - Deterministic: the expansion and its gradient are; the convolution is as PyTorch's (``torch.backends.cudnn.deterministic``).
    - Derivatives: every order.
    - Commutes with: translations of the grid, as far as padding and stride allow; without bias and ``rotation``, products with a
      constant multivector from the left. It does not commute with rotations; :class:`CliffordSteerableConv` does.
    - Source: cliffordlayers' ``CliffordConv2d`` (Brandstetter et al., "Clifford neural layers for PDE modeling", arXiv 2209.04934,
      section 3), with the names of its state dict. Two things differ. There ``groups`` splits real channels, so that groups hold other
      blades, not other channels. And there only ``"zeros"`` pads.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv2d((1, 1), 4, 8, kernel_size=3, padding=1, padding_mode="circular")
        >>> layer(torch.randn(2, 4, 16, 16, 4)).shape
        torch.Size([2, 8, 16, 16, 4])
    """

    axes = 2


class CliffordConv3d(CliffordConv):
    """A convolution of multivectors in a volume, as :class:`CliffordConv2d` on a plane.

    Shapes:
        - input ``[batch, in_channels, depth, height, width, blades]``, output ``[batch, out_channels, depth', height', width', blades]``
        - ``weight.0`` ... one for each blade, ``[out_channels, in_channels / groups, *kernel]``; ``bias`` ``[blades, out_channels]``

    Args, types, errors, symmetries and source: as for :class:`CliffordConv2d`.

    Example:
        >>> import torch
        >>> from flashcliff.nn import convolution
        >>> layer = convolution.CliffordConv3d((1, 1, 1), 2, 3, kernel_size=3, padding="same")
        >>> layer(torch.randn(1, 2, 6, 6, 6, 8)).shape
        torch.Size([1, 3, 6, 6, 6, 8])
    """

    axes = 3
