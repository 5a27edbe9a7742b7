"""L-GATr and L-GATr-slim in plain torch, from parameters by the names of their state dicts.

Nothing here comes from the package under test. Multivectors are [..., items, channels, 16], linear maps are dense
16x16 matrices from lists typed here, products are sums over a Cayley table, attention is a dense softmax.
"""

import math
from itertools import combinations

import torch
from nn_reference import Table

TABLE = Table(1, 3, 0)
GRADES = TABLE.grades.tolist()

# x * e0123 of one grade: (output, input, sign).
DUALS = [
    [(15, 0, 1)],
    [(11, 4, 1), (12, 3, -1), (13, 2, 1), (14, 1, 1)],
    [(5, 10, -1), (6, 9, 1), (7, 8, -1), (8, 7, 1), (9, 6, -1), (10, 5, 1)],
    [(1, 14, -1), (2, 13, -1), (3, 12, 1), (4, 11, -1)],
    [(0, 15, -1)],
]

# The squared norms of the blades.
SIGNS = [1, 1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1]


def maps(subgroup=True):
    """The linear maps that commute with the group, [10 or 5, 16, 16]."""
    found = torch.zeros(10, 16, 16, dtype=torch.float64)
    for blade, grade in enumerate(GRADES):
        found[grade, blade, blade] = 1
    for grade, entries in enumerate(DUALS):
        for output, source, sign in entries:
            found[5 + grade, output, source] = sign
    return found if subgroup else found[:5]


def on_multivectors(matrix):
    """The 16x16 matrix of a 4x4 one: products of vectors go to products of their images."""
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


class Reference:
    """The functions of a network with parameters by name.

    The options are those of the network, and for lgatr 1.4 `version=1`.
    """

    def __init__(self, parameters, *, heads, subgroup=True, bivector=True, product=True, version=2):
        self.p = parameters
        self.heads, self.version = heads, version
        self.subgroup, self.bivector, self.product = subgroup, bivector, product
        self.maps = maps(subgroup)

    def linear(self, name, mv, s):
        p = {k[len(name) + 1 :]: v for k, v in self.p.items() if k.startswith(f"{name}.")}
        out = torch.einsum("yxa,aij,...xj->...yi", p["weight"], self.maps, mv)
        if "bias" in p:
            out = out + torch.nn.functional.pad(p["bias"], (0, 15))
        blades = [0, 15] if self.subgroup else [0]
        if "s2mvs.weight" in p:
            added = s @ p["s2mvs.weight"].T + p.get("s2mvs.bias", 0)
            added = added.unflatten(-1, (-1, len(blades)))
            full = torch.zeros_like(out)
            full[..., blades] = added
            out = out + full
        if "mvs2s.weight" not in p:
            return out, None
        out_s = mv[..., blades].flatten(-2) @ p["mvs2s.weight"].T + p.get("mvs2s.bias", 0)
        if p.get("s2s.weight", torch.empty(0)).numel():
            out_s = out_s + s @ p["s2s.weight"].T
        return out, out_s

    def norm(self, name, mv, s):
        signed = mv * mv * torch.tensor(SIGNS, dtype=torch.float64)
        by_grade = [signed[..., torch.tensor(GRADES) == g].sum(-1).abs() for g in range(5)]
        mean = sum(by_grade).mean(-1).clamp(min=0.01)
        mv = mv / mean.sqrt()[..., None, None]
        if s is not None:
            centred = s - s.mean(-1, keepdim=True)
            s = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        if f"{name}.weight_mv" in self.p:
            mv = mv * self.p[f"{name}.weight_mv"][:, GRADES]
            s = None if s is None else s * self.p[f"{name}.weight_s"]
        return mv, s

    def bilinear(self, name, mv, s):
        left, _ = self.linear(f"{name}.linear_left", mv, s)
        right, _ = self.linear(f"{name}.linear_right", mv, s)
        hidden = torch.einsum("...i,ijk,...k->...j", left, TABLE.cayley, right)
        if not self.bivector:
            hidden = hidden * (torch.tensor(GRADES) != 2)
        return self.norm("", *self.linear(f"{name}.linear_out", hidden, s))

    def gate(self, mv, s):
        def tanh(x):
            return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2

        def exact(x):
            return x * (1 + torch.erf(x / math.sqrt(2))) / 2

        return tanh(mv[..., :1]) * mv, (tanh if self.version == 2 else exact)(s)

    def mlp(self, name, mv, s):
        if self.product:
            mv, s = self.bilinear(f"{name}.layers.0", mv, s)
            rest = [2]
        else:
            rest = [1, 3]
        for layer in rest:
            mv, s = self.linear(f"{name}.layers.{layer}", *self.gate(mv, s))
        return mv, s

    def split(self, mv, s, parts, heads):
        """Parts, each [..., heads, items, channels, 16] and [..., heads, items, scalars]."""
        mv = mv.unflatten(-2, (parts, -1, heads)).movedim(-2, -5)
        s = s.unflatten(-1, (parts, -1, heads)).movedim(-1, -4)
        return [(mv[..., part, :, :], s[..., part, :]) for part in range(parts)]

    def attend(self, name, query, key, value, keep):
        (q, q_s), (k, k_s), (v, v_s) = query, key, value
        signs = torch.tensor(SIGNS, dtype=torch.float64)
        logits = torch.einsum("...icx,...jcx->...ij", q * signs, k)
        logits = logits + torch.einsum("...ic,...jc->...ij", q_s, k_s)
        logits = logits / math.sqrt(16 * q.shape[-2] + q_s.shape[-1])
        if keep is not None:
            logits = logits.masked_fill(~keep, -math.inf)
        weights = logits.softmax(-1)
        mv = torch.einsum("...ij,...jcx->...icx", weights, v)
        s = torch.einsum("...ij,...jc->...ic", weights, v_s)
        if f"{name}.head_scale" in self.p:
            scale = self.p[f"{name}.head_scale"]
            mv, s = mv * scale[:, None, None, None], s * scale[:, None, None]
        mv, s = mv.movedim(-4, -3).flatten(-3, -2), s.movedim(-3, -2).flatten(-2)
        return self.linear(f"{name}.out_linear", mv, s)

    def self_attention(self, name, mv, s, keep=None):
        inner = f"{name}.qkv_module"
        if f"{inner}.in_linear.weight" in self.p:
            heads = self.split(*self.linear(f"{inner}.in_linear", mv, s), 3, self.heads)
        else:
            counts = {"q": self.heads, "k": 1, "v": 1}
            heads = [
                self.split(*self.linear(f"{inner}.{x}_linear", mv, s), 1, count)[0]
                for x, count in counts.items()
            ]
        return self.attend(name, *(self.norm("", *head) for head in heads), keep)

    def cross_attention(self, name, mv, s, other, other_s, keep=None):
        query = self.split(*self.linear(f"{name}.q_linear", mv, s), 1, self.heads)
        both = self.split(*self.linear(f"{name}.kv_linear", other, other_s), 2, self.heads)
        heads = [*query, *both]
        if self.version == 2:
            heads = [self.norm("", *head) for head in heads]
        return self.attend(name, *heads, keep)

    def block(self, name, mv, s, keep=None):
        added = self.self_attention(
            f"{name}.attention", *self.norm(f"{name}.norm1", mv, s), keep=keep
        )
        mv, s = mv + added[0], s + added[1]
        added = self.mlp(f"{name}.mlp", *self.norm(f"{name}.norm2", mv, s))
        return mv + added[0], s + added[1]

    def conditional_block(self, name, mv, s, other, other_s):
        added = self.self_attention(f"{name}.attention", *self.norm(f"{name}.norm1", mv, s))
        mv, s = mv + added[0], s + added[1]
        here = self.norm(f"{name}.norm2", mv, s)
        condition = self.norm(f"{name}.norm_cond", other, other_s)
        added = self.cross_attention(f"{name}.crossattention", *here, *condition)
        mv, s = mv + added[0], s + added[1]
        added = self.mlp(f"{name}.mlp", *self.norm(f"{name}.norm3", mv, s))
        return mv + added[0], s + added[1]

    def network(self, mv, s, blocks, keep=None, condition=None):
        mv, s = self.linear("linear_in", mv, s)
        for at in range(blocks):
            name = f"blocks.{at}"
            if condition is None:
                mv, s = self.block(name, mv, s, keep)
            else:
                mv, s = self.conditional_block(name, mv, s, *condition)
        return self.linear("linear_out", mv, s)


class SlimReference:
    """The functions of a slim network with parameters by name; vectors are [..., items, channels, 4]."""

    METRIC = torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)

    def __init__(self, parameters, *, heads, version=2):
        self.p, self.heads, self.version = parameters, heads, version

    def linear(self, name, v, s):
        bias = self.p.get(f"{name}.linear_s.bias", 0)
        of_vectors = torch.einsum("oc,...cx->...ox", self.p[f"{name}.weight_v"], v)
        return of_vectors, s @ self.p[f"{name}.linear_s.weight"].T + bias

    def norm(self, name, v, s):
        squares = (v * v * self.METRIC).sum(-1).abs()
        mean = torch.cat((squares, s * s), -1).mean(-1, keepdim=True)
        root = (mean + 0.01).sqrt()
        v, s = v / root[..., None], s / root
        if f"{name}.weight_v" in self.p:
            v, s = v * self.p[f"{name}.weight_v"][:, None], s * self.p[f"{name}.weight_s"]
        return v, s

    def unit(self, name, v, s):
        (v, left, right), (s, gate) = (
            x.chunk(n, axis)
            for x, n, axis in zip(self.linear(name, v, s), (3, 2), (-2, -1), strict=True)
        )
        inner = (left * right * self.METRIC).sum(-1, keepdim=True)
        if self.version == 2:
            of_vectors = torch.sigmoid(inner / 2)
            of_scalars = (
                gate * (1 + torch.tanh(0.7978845608028654 * (gate + 0.044715 * gate**3))) / 2
            )
        else:
            of_vectors, of_scalars = (
                x * (1 + torch.erf(x / math.sqrt(2))) / 2 for x in (inner, gate)
            )
        return of_vectors * v, of_scalars * s

    def attention(self, name, v, s):
        v, s = self.linear(f"{name}.linear_in", v, s)
        v = v.unflatten(-2, (3, -1, self.heads)).movedim(-2, -5)
        s = s.unflatten(-1, (3, -1, self.heads)).movedim(-1, -4)
        (q, q_s), (k, k_s), (v, v_s) = (
            self.norm("", v[..., part, :, :], s[..., part, :]) for part in range(3)
        )
        logits = torch.einsum("...icx,...jcx->...ij", q * self.METRIC, k)
        logits = logits + torch.einsum("...ic,...jc->...ij", q_s, k_s)
        weights = (logits / math.sqrt(4 * q.shape[-2] + q_s.shape[-1])).softmax(-1)
        v = torch.einsum("...ij,...jcx->...icx", weights, v).movedim(-4, -3).flatten(-3, -2)
        s = torch.einsum("...ij,...jc->...ic", weights, v_s).movedim(-3, -2).flatten(-2)
        return self.linear(f"{name}.linear_out", v, s)

    def network(self, v, s, blocks):
        v, s = self.linear("linear_in", v, s)
        for at in range(blocks):
            name = f"blocks.{at}"
            added = self.attention(f"{name}.attention", *self.norm(f"{name}.norm1", v, s))
            v, s = v + added[0], s + added[1]
            hidden = self.unit(f"{name}.mlp.layers.0.linear", *self.norm(f"{name}.norm2", v, s))
            added = self.linear(f"{name}.mlp.layers.1", *hidden)
            v, s = v + added[0], s + added[1]
        return self.linear("linear_out", v, s)
