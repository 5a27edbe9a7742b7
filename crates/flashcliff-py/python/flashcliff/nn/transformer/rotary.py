"""Rotary position encoding of scalar channels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..._ops import checks
from ..._ops.kept import for_later_calls
from .._module import check_features
from . import path
from .described.description import Description
from .described.draft import Undescribed
from .geometry import check_floating

__all__ = ["RotaryEncoding"]


@path.stands_for
class RotaryEncoding(nn.Module):
    """Rotates pairs of scalar channels by angles that grow with the position of the item.

    Channel ``c`` of the first half is paired with channel ``c + channels / 2``; the angle is ``position *
    base^(-2c / channels)``. Input and output are ``[*batch, items, heads, channels]``. Positions, angles and products are
    in float32 at least, and in float64 where the input is.

    Source: Su et al. 2021 (arXiv 2104.09864), in the form of GATr.

    Example:
        >>> import torch
        >>> from flashcliff.nn.transformer import RotaryEncoding
        >>> RotaryEncoding(8)(torch.randn(2, 10, 4, 8)).shape
        torch.Size([2, 10, 4, 8])
    """

    inv_freq: Tensor

    def __init__(self, channels: int, base: float = 4096) -> None:
        super().__init__()
        if check_features("channels", channels) % 2:
            raise ValueError(f"channels: expected an even number, got {channels}")
        checks.positive("base", base)
        # Fake tensors would have no numbers.
        with for_later_calls():
            single = (base ** (-torch.arange(0, channels, 2).float() / channels)).tolist()
        self.register_buffer("inv_freq", base ** (-torch.arange(0, channels, 2).float() / channels))
        self.base = base
        self._single = tuple(single)
        self._double = tuple(float(base) ** (-c / channels) for c in range(0, channels, 2))
        self._last: _Found | None = None

    def forward(self, x: Tensor) -> Tensor:
        """``x`` ``[*batch, items, heads, channels]``, turned, in the same shape and type."""
        check_floating("x", x)
        channels = 2 * len(self._single)
        if x.dim() < 3 or x.shape[-1] != channels:
            raise ValueError(f"x: expected [*batch, items, heads, {channels}], got {list(x.shape)}")
        wide = torch.promote_types(x.dtype, torch.float32)
        positions = torch.arange(x.shape[-3], device=x.device, dtype=wide)
        angles = (positions[:, None] * self._frequencies(x.device, wide)).unsqueeze(1)
        first, second = x.chunk(2, dim=-1)
        cos, sin = angles.cos(), angles.sin()
        turned = torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1)
        return turned.to(x.dtype)

    def described_base(self, network: Description, scalars: int) -> int:
        """The base of the frequencies, for a network whose heads have so many scalars."""
        network.reads(self, "base", "_single")
        network.facts.append((self._buffers, "inv_freq"))
        buffer = self.inv_freq
        if buffer.is_inference():
            raise Undescribed("frequencies of positions were made in inference mode")
        network.tensors.append((buffer, buffer._version))
        found = self._derived(torch.device("cpu"), torch.float64)
        published = torch.tensor(self._double, dtype=torch.float64)
        if self.base != int(self.base) or self.base < 1 or not torch.equal(found, published):
            raise Undescribed("positions have other frequencies")
        if 2 * len(self._single) != scalars:
            raise Undescribed("positions have frequencies for other heads")
        return int(self.base)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_last": None}

    def _frequencies(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        """The frequencies of the buffer in a type, without the rounding of the types that a module was cast to."""
        buffer = self.inv_freq
        if torch.compiler.is_compiling() or buffer.is_inference():
            return self._derived(device, dtype)
        last, asked = self._last, (device, dtype, buffer._version)
        if last is not None and last.buffer is buffer and last.asked == asked:
            return last.frequencies
        # A tensor made in inference mode could not be saved for a later backward pass.
        with torch.inference_mode(False):
            found = self._derived(device, dtype)
        # A fake tensor could not be used by any other call, and one of a CUDA graph has no numbers before a replay.
        captured = found.is_cuda and torch.cuda.is_current_stream_capturing()
        if type(found) is Tensor and not captured:
            self._last = _Found(buffer, asked, found)
        return found

    def _derived(self, device: torch.device, dtype: torch.dtype) -> Tensor:
        buffer = self.inv_freq.to(device)
        single = torch.tensor(self._single, dtype=torch.float32, device=device)
        wide, exact = buffer.double(), self._single
        # A state dict may bring frequencies of another base. They are ours if they are ours after rounding.
        ours = [(wide == single.to(of).double()).all() for of in (torch.bfloat16, torch.float16)]
        if dtype == torch.float64:
            ours.append(torch.isclose(wide, single.double(), rtol=1e-6, atol=0).all())
            exact = self._double
        found = torch.tensor(exact, dtype=dtype, device=device)
        return found.where(torch.stack(ours).any(), buffer.to(dtype))


class _Found(NamedTuple):
    """Frequencies that were derived from a buffer, and for what."""

    buffer: Tensor
    asked: tuple[torch.device, torch.dtype, int]
    frequencies: Tensor
