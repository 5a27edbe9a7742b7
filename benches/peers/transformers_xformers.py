"""A stand-in for the parts of `xformers` that the packages `gatr` and `lgatr` import, where it is not installed.

The kernel is PyTorch's own copy of xformers' memory-efficient attention, so that ragged batches run there as with
xformers in float32. Tensors are `[1, items, heads, features]`.
"""

import importlib.machinery
import importlib.util
import sys
import types

import torch

STAND_IN = "a stand-in around torch.ops.aten._efficient_attention_forward"


class AttentionBias:
    """The base of biases."""


class SequenceLengths:
    """The boundaries of the sequences of a ragged batch."""

    def __init__(self, lengths, device):
        bounds = [0]
        for length in lengths:
            bounds.append(bounds[-1] + length)
        self.seqstart_py = bounds
        self.seqstart = torch.tensor(bounds, dtype=torch.int32, device=device)
        self.min_seqlen, self.max_seqlen = min(lengths), max(lengths)


class BlockDiagonalMask(AttentionBias):
    """Each item attends within its sequence."""

    def __init__(self, q_seqinfo, k_seqinfo):
        self.q_seqinfo, self.k_seqinfo = q_seqinfo, k_seqinfo

    @classmethod
    def from_seqlens(cls, lengths, device="cpu"):
        """The mask of sequences of these lengths."""
        info = SequenceLengths(lengths, device)
        return cls(info, info)


class BlockDiagonalCausalMask(BlockDiagonalMask):
    """Each item attends to earlier items of its sequence."""


class BlockDiagonalCausalFromBottomRightMask(BlockDiagonalCausalMask):
    """The same, counted from the last items."""


def memory_efficient_attention(query, key, value, attn_bias=None, p=0.0, scale=None, op=None):
    """Attention within the sequences of a `BlockDiagonalMask`."""
    if type(attn_bias) is not BlockDiagonalMask or p:
        raise NotImplementedError("the stand-in has BlockDiagonalMask only, and no dropout")
    q, k = attn_bias.q_seqinfo, attn_bias.k_seqinfo
    wants_gradient = torch.is_grad_enabled()
    found = torch.ops.aten._efficient_attention_forward(
        query,
        key,
        value,
        None,
        q.seqstart,
        k.seqstart,
        q.max_seqlen,
        k.max_seqlen,
        0.0,
        0,
        wants_gradient,
        scale=scale,
    )
    return found[0]


def install():
    """Makes `import xformers` succeed. Returns what it imports, for the record."""
    if importlib.util.find_spec("xformers") is not None:
        import xformers

        return getattr(xformers, "__version__", STAND_IN)
    own = sys.modules[__name__]
    package = _package("xformers")
    package.ops = _package("xformers.ops")
    package.ops.fmha = _package("xformers.ops.fmha")
    package.ops.fmha.attn_bias = own
    for module in (package.ops, package.ops.fmha):
        for name in ("AttentionBias", "BlockDiagonalMask", "memory_efficient_attention"):
            setattr(module, name, getattr(own, name))
    sys.modules |= {
        "xformers": package,
        "xformers.ops": package.ops,
        "xformers.ops.fmha": package.ops.fmha,
        "xformers.ops.fmha.attn_bias": own,
    }
    return STAND_IN


def _package(name):
    package = types.ModuleType(name)
    package.__path__ = []
    package.__spec__ = importlib.machinery.ModuleSpec(name, None, is_package=True)
    return package
