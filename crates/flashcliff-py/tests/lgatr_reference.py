"""L-GATr and L-GATr-slim in plain torch, from parameters by the names of their state dicts.

Nothing here comes from the package under test. Linear maps are matrices from lists typed here, products are sums over a
Cayley table.
"""

import torch
import transformer_reference
from nn_reference import Table
from transformer_reference import gelu, gelu_by_tanh, sum_of

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
SIGNS = torch.tensor([1.0, 1, -1, -1, -1, -1, -1, -1, 1, 1, 1, 1, 1, 1, -1, -1]).double()


def maps(subgroup=True):
    """The linear maps that commute with the group, [10 or 5, 16, 16]."""
    found = torch.zeros(10, 16, 16, dtype=torch.float64)
    for blade, grade in enumerate(GRADES):
        found[grade, blade, blade] = 1
    for grade, entries in enumerate(DUALS):
        for output, source, sign in entries:
            found[5 + grade, output, source] = sign
    return found if subgroup else found[:5]


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


class Reference(transformer_reference.Reference):
    """L-GATr. It takes the options of the network, and for lgatr 1.4 `version=1`."""

    signs = SIGNS

    def __init__(self, parameters, *, heads, subgroup=True, bivector=True, product=True, version=2):
        super().__init__(parameters, heads)
        self.version, self.bivector, self.product = version, bivector, product
        self.maps, self.blades = maps(subgroup), (0, 15) if subgroup else (0,)

    def squares(self, mv):
        signed = mv * mv * SIGNS
        return sum(signed[..., torch.tensor(GRADES) == g].sum(-1).abs() for g in range(5))

    def norm(self, mv, s, name=""):
        mv, s = super().norm(mv, s)
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
        return self.norm(*self.linear(f"{name}.linear_out", hidden, s))

    def gate(self, mv, s):
        of_scalars = gelu_by_tanh if self.version == 2 else gelu
        return gelu_by_tanh(mv[..., :1]) * mv, of_scalars(s)

    def mlp(self, name, mv, s):
        if self.product:
            mv, s = self.bilinear(f"{name}.layers.0", mv, s)
        for layer in [2] if self.product else [1, 3]:
            mv, s = self.linear(f"{name}.layers.{layer}", *self.gate(mv, s))
        return mv, s

    def cross_attention(self, name, here, others):
        query = self.split(self.linear(f"{name}.q_linear", *here))
        heads = [*query, *self.split(self.linear(f"{name}.kv_linear", *others), 2)]
        if self.version == 2:
            heads = self.of_heads(name, *heads)
        return self.attend(name, *heads)

    def block(self, name, mv, s, condition=None, **options):
        if condition is None:
            return super().block(name, mv, s, **options)
        x = mv, s
        x = sum_of(x, self.attention(f"{name}.attention", *self.norm(*x, f"{name}.norm1")))
        here, others = self.norm(*x, f"{name}.norm2"), self.norm(*condition, f"{name}.norm_cond")
        x = sum_of(x, self.cross_attention(f"{name}.crossattention", here, others))
        return sum_of(x, self.mlp(f"{name}.mlp", *self.norm(*x, f"{name}.norm3")))


class SlimReference(transformer_reference.Reference):
    """L-GATr-slim, whose vectors are [..., items, channels, 4]."""

    signs = torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)
    out = "linear_out"

    def __init__(self, parameters, *, heads, version=2):
        super().__init__(parameters, heads)
        self.version = version

    def linear(self, name, v, s):
        bias = self.p.get(f"{name}.linear_s.bias", 0)
        of_vectors = torch.einsum("oc,...cx->...ox", self.p[f"{name}.weight_v"], v)
        return of_vectors, s @ self.p[f"{name}.linear_s.weight"].T + bias

    def norm(self, v, s, name=""):
        squares = (v * v * self.signs).sum(-1).abs()
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
        inner = (left * right * self.signs).sum(-1, keepdim=True)
        if self.version == 2:
            return torch.sigmoid(inner / 2) * v, gelu_by_tanh(gate) * s
        return gelu(inner) * v, gelu(gate) * s

    def mlp(self, name, v, s):
        return self.linear(f"{name}.layers.1", *self.unit(f"{name}.layers.0.linear", v, s))

    def projected(self, name, v, s, extra):
        return self.split(self.linear(f"{name}.linear_in", v, s), 3)
