"""What GATr, L-GATr and L-GATr-slim have in common, in plain torch, from parameters by the names of their state dicts.

Nothing here comes from the package under test. Multivectors are [..., items, channels, blades], linear maps are dense
matrices, attention is a dense softmax.
"""

import math
from itertools import combinations

import torch
from torch.nn import functional as F


def on_multivectors(matrix):
    """The 16x16 matrix of a 4x4 one: outer products of vectors go to outer products of their images."""
    rows = [c for grade in range(5) for c in combinations(range(4), grade)]
    out = torch.zeros(16, 16, dtype=torch.float64)
    for i, left in enumerate(rows):
        for j, right in enumerate(rows):
            if len(left) == len(right):
                minor = matrix[list(left)][:, list(right)]
                out[i, j] = torch.linalg.det(minor) if left else 1.0
    return out


def lorentz(seed, proper=True):
    """A random boost and rotation, and unless `proper` a reflection of x and of t."""
    generator = torch.Generator().manual_seed(seed)
    a = torch.randn(4, 4, generator=generator, dtype=torch.float64) * 0.5
    metric = torch.diag(torch.tensor([1.0, -1, -1, -1], dtype=torch.float64))
    found = torch.linalg.matrix_exp((a - a.T) @ metric)
    if not proper:
        found = found @ torch.diag(torch.tensor([-1.0, -1, 1, 1], dtype=torch.float64))
        found = found @ torch.diag(torch.tensor([1.0, 1, -1, 1], dtype=torch.float64))
    assert torch.allclose(found.T @ metric @ found, metric)
    return found


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def gelu_by_tanh(x):
    return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2


def sum_of(pair, other):
    """The sums of multivectors and of scalars, which may be missing."""
    return tuple(None if x is None else x + y for x, y in zip(pair, other, strict=True))


class Reference:
    """The functions of a network with parameters by name.

    A network says its linear maps `maps`, the `blades` that scalars turn into, the `signs` of the inner product, and
    the functions `squares` and `mlp`.
    """

    blades = (0,)

    def __init__(self, parameters, heads):
        self.p, self.heads = parameters, heads

    def linear(self, name, mv, s):
        p = {k[len(name) + 1 :]: v for k, v in self.p.items() if k.startswith(f"{name}.")}
        out = torch.einsum("yxa,aij,...xj->...yi", p["weight"], self.maps, mv)
        if "bias" in p:
            out = out + F.pad(p["bias"], (0, 15))
        blades = list(self.blades)
        if "s2mvs.weight" in p:
            full = torch.zeros_like(out)
            added = s @ p["s2mvs.weight"].T + p.get("s2mvs.bias", 0)
            full[..., blades] = added.unflatten(-1, (-1, len(blades)))
            out = out + full
        if "mvs2s.weight" not in p:
            return out, None
        out_s = mv[..., blades].flatten(-2) @ p["mvs2s.weight"].T + p.get("mvs2s.bias", 0)
        if p.get("s2s.weight", torch.empty(0)).numel():
            out_s = out_s + s @ p["s2s.weight"].T
        return out, out_s

    def norm(self, mv, s, name=""):
        mean = self.squares(mv).mean(-1).clamp(min=0.01)
        mv = mv / mean.sqrt()[..., None, None]
        if s is not None:
            centred = s - s.mean(-1, keepdim=True)
            s = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return mv, s

    def split(self, pair, parts=1, heads=None):
        """Parts, each [..., heads, items, channels, blades] and [..., heads, items, scalars]."""
        heads = self.heads if heads is None else heads
        mv, s = pair
        mv = mv.unflatten(-2, (parts, -1, heads)).movedim(-2, -5)
        if s is None:
            return [(mv[..., part, :, :], None) for part in range(parts)]
        s = s.unflatten(-1, (parts, -1, heads)).movedim(-1, -4)
        return [(mv[..., part, :, :], s[..., part, :]) for part in range(parts)]

    def logits(self, name, query, key):
        (q, q_s), (k, k_s) = query, key
        inner = torch.einsum("...icx,...jcx->...ij", q * self.signs, k)
        inner = inner + torch.einsum("...ic,...jc->...ij", q_s, k_s)
        return inner / math.sqrt(q.shape[-2] * q.shape[-1] + q_s.shape[-1])

    def attend(self, name, query, key, value, keep=None):
        """Attention with a mask or a bias, and the projection back."""
        logits = self.logits(f"{name}.attention", query, key)
        if keep is not None:
            masked = keep.dtype == torch.bool
            logits = logits.masked_fill(~keep, -math.inf) if masked else logits + keep
        weights, (v, v_s) = logits.softmax(-1), value
        scale = self.p.get(f"{name}.head_scale", torch.ones(()).to(v))[..., None, None]
        mv = torch.einsum("...ij,...jcx->...icx", weights, v) * scale[..., None]
        mv, s = mv.movedim(-4, -3).flatten(-3, -2), None
        if v_s is not None:
            s = torch.einsum("...ij,...jc->...ic", weights, v_s) * scale
            s = s.movedim(-3, -2).flatten(-2)
        return self.linear(f"{name}.{self.out}", mv, s)

    out = "out_linear"

    def projected(self, name, mv, s, extra):
        """Queries, keys and values, of which the first two also see what is beside the input."""

        def joined(x, more, dim):
            return x if more is None else torch.cat((x, more), dim=dim)

        seen = joined(mv, extra[0], -2), joined(s, extra[1], -1)
        module = f"{name}.qkv_module"
        if f"{module}.in_linear.weight" in self.p:
            return self.split(self.linear(f"{module}.in_linear", *seen), 3)
        (q,) = self.split(self.linear(f"{module}.q_linear", *seen))
        (k,) = self.split(self.linear(f"{module}.k_linear", *seen), heads=1)
        (v,) = self.split(self.linear(f"{module}.v_linear", mv, s), heads=1)
        return q, k, v

    def of_heads(self, name, q, k, v):
        """What self-attention does to queries, keys and values: here it normalises them."""
        return [self.norm(*x) for x in (q, k, v)]

    def attention(self, name, mv, s, extra=(None, None), keep=None):
        heads = self.of_heads(name, *self.projected(name, mv, s, extra))
        return self.attend(name, *heads, keep)

    def block(self, name, mv, s, extra=(None, None), keep=None, **of_mlp):
        x = mv, s
        here = self.norm(*x, f"{name}.norm1")
        x = sum_of(x, self.attention(f"{name}.attention", *here, extra, keep))
        return sum_of(x, self.mlp(f"{name}.mlp", *self.norm(*x, f"{name}.norm2"), **of_mlp))

    def network(self, mv, s, blocks, **of_blocks):
        x = self.linear("linear_in", mv, s)
        for at in range(blocks):
            x = self.block(f"blocks.{at}", *x, **of_blocks)
        return self.linear("linear_out", *x)
