"""The element types of PyTorch that operators take."""

from __future__ import annotations

import torch

NAMES = {
    torch.float32: "f32",
    torch.float64: "f64",
    torch.bfloat16: "bf16",
    torch.float16: "f16",
}
"""The names by which the extension knows them."""
