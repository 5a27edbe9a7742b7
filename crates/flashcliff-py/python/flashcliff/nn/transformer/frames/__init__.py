"""Transformers of plain layers in local frames (LLoCa, arXiv 2505.20280).

Each item has a frame, a matrix that an equivariant network predicts. In its frame the vectors of an item are numbers that no transformation
of all items changes, so layers between items may be any; attention takes what an item sends from its own frame to that of who receives it.

| module       | what                                                                      |
|--------------|---------------------------------------------------------------------------|
| `change`     | vectors in the frames of their items, and back                            |
| `components` | plain layers: linear maps, norms, GELU and dropout of all components      |
| `attention`  | attention from frame to frame                                             |
| `network`    | blocks and transformers                                                   |
| `predicted`  | frames made of vectors, and a small network that predicts them            |
"""

from __future__ import annotations

from .attention import FrameAttention
from .change import from_frames, to_frames
from .components import (
    ComponentDropout,
    ComponentGelu,
    ComponentLinear,
    ComponentMLP,
    ComponentNorm,
)
from .network import FrameBlock, FrameTransformer
from .predicted import FramePredictor, polar_frames

__all__ = [
    "ComponentDropout",
    "ComponentGelu",
    "ComponentLinear",
    "ComponentMLP",
    "ComponentNorm",
    "FrameAttention",
    "FrameBlock",
    "FramePredictor",
    "FrameTransformer",
    "from_frames",
    "polar_frames",
    "to_frames",
]
