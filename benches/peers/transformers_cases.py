"""Networks and inputs that the comparisons of transformers measure: the published packages and flashcliff."""

import math

import torch

TOLERANCE = 2e-5


def packages(name):
    """The published package and flashcliff's module of its names."""
    if name == "gatr":
        import gatr
        from flashcliff.compat import gatr as ours

        return gatr, ours
    import lgatr
    from flashcliff.compat import lgatr as ours

    return lgatr, ours


def gatr_net(package, blocks=10):
    """GATr's n-body network: 16 multivector and 128 scalar channels, 8 heads."""
    attention, mlp = package.SelfAttentionConfig(), package.MLPConfig()
    return package.GATr(1, 1, 16, 1, 1, 128, attention, mlp, num_blocks=blocks)


def wide_gatr_net(package):
    """GATr of 8 blocks of 24 multivector and 96 scalar channels, 8 heads."""
    attention, mlp = package.SelfAttentionConfig(), package.MLPConfig()
    return package.GATr(1, 1, 24, 1, 1, 96, attention, mlp, num_blocks=8)


def lgatr_net(package, size=0, blocks=None):
    """L-GATr of a size of the tagging guide: 8 heads and MLP ratio 2; size 0 has 8 blocks of 16 multivector and 64
    scalar channels, size 1 has 12 blocks of 32 and 128."""
    attention = package.SelfAttentionConfig(num_heads=8)
    mlp = package.MLPConfig(mlp_ratio=2)
    if blocks is None:
        blocks = round(3 * 2 ** ((size + 3) / 2))
    channels, scalars = round(2 ** (size + 4)), round(2 ** (size + 6))
    return package.LGATr(blocks, 1, 1, channels, 1, 1, scalars, attention, mlp)


def tagger_net(package):
    """L-GATr of the published top tagger: 12 blocks of 16 multivector and 32 scalar channels, 8 heads, MLP ratio 2."""
    return _lgatr(package, 12, 16, 32)


def amplitudes_net(package):
    """L-GATr of the size of amplitude regression: 8 blocks of 20 multivector and 32 scalar channels, 8 heads."""
    return _lgatr(package, 8, 20, 32)


def _lgatr(package, blocks, channels, scalars):
    attention = package.SelfAttentionConfig(num_heads=8)
    mlp = package.MLPConfig(mlp_ratio=2)
    return package.LGATr(blocks, 1, 1, channels, 1, 1, scalars, attention, mlp)


def slim_net(package):
    """L-GATr-slim of a tagger: 12 blocks of 32 vector and 96 scalar channels, 8 heads."""
    return package.LGATrSlim(12, 1, 1, 32, 1, 1, 96, 8)


def arteries_net(package):
    """GATr of the size of its arteries: 10 blocks of 8 multivector and 32 scalar channels, 4 heads."""
    attention, mlp = package.SelfAttentionConfig(num_heads=4), package.MLPConfig()
    return package.GATr(1, 1, 8, 1, 1, 32, attention, mlp, num_blocks=10)


def inputs(*shape, components=16):
    """Multivectors, or vectors of four components, `[*shape, 1, components]` and scalars `[*shape, 1]`."""
    return torch.randn(*shape, 1, components), torch.randn(*shape, 1)


def jet_lengths(jets, mean=49, more=4):
    """Lengths of jets: normal with a deviation of 20 around the mean, at least 5, and tokens that each jet has more."""
    generator = torch.Generator().manual_seed(0)
    drawn = mean + 20 * torch.randn(jets, generator=generator)
    return [max(round(length), 5) + more for length in drawn.tolist()]


def difference(got, want):
    """The largest difference of tensors, each relative to its largest element."""
    return max(((g - w).abs().max() / w.abs().max()).item() for g, w in zip(got, want, strict=True))


def together(got, want):
    """The largest difference of tensors, relative to the largest element of all."""
    largest = max(w.abs().max().item() for w in want)
    off = max((g - w).abs().max().item() for g, w in zip(got, want, strict=True))
    return off / largest if largest else math.nan


def loss(outputs):
    """The loss of a training step: the sum of squares."""
    return sum(out.square().sum() for out in outputs)


def versions():
    """The versions of PyTorch and of the packages."""
    import gatr
    import lgatr

    modules = {"torch": torch, "gatr": gatr, "lgatr": lgatr}
    return {name: module.__version__ for name, module in modules.items()}
