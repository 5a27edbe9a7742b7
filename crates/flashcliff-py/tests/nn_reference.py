"""The layers in plain torch, from Cayley tables made here. Modules are compared with them.

Nothing here comes from the package under test. Tensors are in CGENN's layout, [batch, channels,
blades], and products are dense sums over the whole table.
"""

import math
from itertools import combinations

import torch


class Table:
    """Blades, signs and grade paths of a signature (p, q, r), or of the squares of the vectors in any
    order, by arithmetic on bit masks."""

    def __init__(self, p=0, q=0, r=0, squares=None):
        if squares is None:
            squares = [0] * r + [1] * p + [-1] * q
        self.dim = len(squares)
        self.metric = [float(square) for square in squares]
        masks = [
            sum(1 << v for v in vectors)
            for grade in range(self.dim + 1)
            for vectors in combinations(range(self.dim), grade)
        ]
        self.masks = masks
        self.grades = torch.tensor([mask.bit_count() for mask in masks])
        self.sizes = [math.comb(self.dim, grade) for grade in range(self.dim + 1)]
        # Here cayley[i, j, k] is the factor of blade j in blade i times blade k.
        self.cayley = torch.zeros([len(masks)] * 3, dtype=torch.float64)
        for i, a in enumerate(masks):
            for k, b in enumerate(masks):
                swaps = sum(((a >> shift) & b).bit_count() for shift in range(1, self.dim))
                sign = (-1) ** swaps
                for v in range(self.dim):
                    if a & b & (1 << v):
                        sign *= squares[v]
                self.cayley[i, masks.index(a ^ b), k] = sign
        found = self.cayley.nonzero()
        self.paths = sorted({tuple(self.grades[term].tolist()) for term in found})

    def spread(self, weight):
        """The table with weights [..., paths], as [..., i, j, k]."""
        out = weight.new_zeros(*weight.shape[:-1], *self.cayley.shape)
        for i, j, k in self.cayley.nonzero().tolist():
            path = self.paths.index(tuple(self.grades[[i, j, k]].tolist()))
            out[..., i, j, k] = weight[..., path] * self.cayley[i, j, k]
        return out

    def q(self, x):
        """The scalar part of reverse(x) x, [..., 1]."""
        reverse = (-1.0) ** (self.grades * (self.grades - 1) // 2)
        return torch.einsum("...i,ik,...k->...", x * reverse, self.cayley[:, 0, :], x)[..., None]

    def by_grade(self, x):
        """The parts of x by grade, each a whole multivector."""
        return [torch.where(self.grades == g, x, 0.0) for g in range(self.dim + 1)]


def smooth_norm(q):
    return (q * q + 1e-16) ** 0.25


def gate(x, name="gelu"):
    """x times a function of its scalar."""
    s = x[..., :1]
    if name == "gelu":
        return x * (1 + torch.erf(s / math.sqrt(2))) / 2
    if name == "gelu_tanh":
        return x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3))) / 2
    return (
        x
        * {
            "none": torch.ones_like(s),
            "silu": torch.sigmoid(s),
            "gelu_fast": torch.sigmoid(1.702 * s),
        }[name]
    )


def rms(table, x, eps=1e-6):
    """Divides each grade by the root of its mean square over channels."""
    parts = table.by_grade(x)
    return sum(p / torch.sqrt((p * p).sum(-1, True).mean(1, True) + eps) for p in parts)


def invariant(table, x, eps=1e-6):
    """Divides each grade by the root of its mean |q| over channels, smooth at 0 if q has both
    signs. A pseudoscalar with a null vector is measured by its own square."""
    out = torch.zeros_like(x)
    for grade, part in enumerate(table.by_grade(x)):
        unit = torch.diag((table.grades == grade).to(x.dtype))
        signs = set(table.q(unit).flatten()[table.grades == grade].tolist())
        q = table.q(part)
        if grade == table.dim:
            q = part.pow(2).sum(-1, True)
        if {1.0, -1.0} <= signs:
            mean = torch.sqrt(q * q + eps * eps).mean(1, True)
        else:
            mean = q.abs().mean(1, True) + eps
        out = out + part / torch.sqrt(mean)
    return out


NORMS = {"none": lambda table, x, eps=1e-6: x, "rms": rms, "invariant": invariant}


def linear(table, x, weight, bias=None, every_blade=False):
    """A linear map: weight [out, in, grades] or [out, in], bias on the scalar or on every blade."""
    if weight.dim() == 3:
        weight = weight[:, :, table.grades]
        y = torch.einsum("bni,mni->bmi", x, weight)
    else:
        y = torch.einsum("bni,mn->bmi", x, weight)
    if bias is not None:
        where = torch.ones(len(table.masks)) if every_blade else (table.grades == 0)
        y = y + bias.reshape(1, -1, 1) * where.to(y.dtype)
    return y


def sgp(table, x, y, weight):
    """The steerable product channel by channel: weight [channels, paths]."""
    return torch.einsum("bni,nijk,bnk->bnj", x, table.spread(weight), y)


def fcgp(table, x, y, weight):
    """The fully connected product: weight [out, in, paths], CGENN's order."""
    return torch.einsum("bni,mnijk,bnk->bmj", x, table.spread(weight), y)


def grade_norm(table, x, a):
    s = torch.sigmoid(a)
    out = 0.0
    for g, part in enumerate(table.by_grade(x)):
        norm = smooth_norm(table.q(part))
        out = out + part / (s[:, g : g + 1] * (norm - 1) + 1 + 1e-6)
    return out


def silu(table, x, a, b, invariant="mag2"):
    out = 0.0
    for g, part in enumerate(table.by_grade(x)):
        u = x[..., :1] if g == 0 else table.q(part)
        if g > 0 and invariant == "norm":
            u = smooth_norm(u)
        out = out + torch.sigmoid(a[0, :, g : g + 1] * u + b[0, :, g : g + 1]) * part
    return out


def layer_norm(table, x, a):
    return a.reshape(1, -1, 1) * x / (smooth_norm(table.q(x)).mean(1, True) + 1e-6)


def steerable(table, x, p, prefix="", fully_connected=False):
    """CGENN's layers, by the names of their state dict."""
    right = linear(table, x, p[prefix + "linear_right.weight"])
    if prefix + "normalization.a" in p:
        right = grade_norm(table, right, p[prefix + "normalization.a"])
    z = (fcgp if fully_connected else sgp)(table, x, right, p[prefix + "weight"])
    if prefix + "linear_left.weight" not in p:
        return z
    left = linear(table, x, p[prefix + "linear_left.weight"], p[prefix + "linear_left.bias"])
    return (left + z) / math.sqrt(2)


def flash_layer(table, x, p, norm="rms", fully_connected=False, every_blade=True):
    """flash-clifford's layer, by the names of its state dict."""
    bias = p.get("linear_bias")
    y = linear(table, x, p["linear_weight"].permute(2, 1, 0), bias, every_blade)
    weight = p["gp_weight"].permute(2, 1, 0) if fully_connected else p["gp_weight"]
    o = (fcgp if fully_connected else sgp)(table, gate(x), gate(y), weight)
    return NORMS[norm](table, o)


def embed_points(table, points):
    out = points.new_zeros(*points.shape[:-1], len(table.masks))
    out[..., 1 : table.dim + 1] = points
    return out


def hulls(table, points, p, products=4):
    x = linear(table, embed_points(table, points), p["net.0.weight"], p["net.0.bias"])
    for i in range(1, products + 1):
        x = steerable(table, x, p, f"net.{i}.")
    norms = torch.sqrt((x * x).sum(-1))
    hidden = norms @ p["mlp.0.weight"].T + p["mlp.0.bias"]
    hidden = hidden * torch.sigmoid(hidden)
    return (hidden @ p["mlp.2.weight"].T + p["mlp.2.bias"])[:, 0]


def regression(table, points, p):
    x = linear(table, embed_points(table, points), p["gp.0.weight"], p["gp.0.bias"])
    x = steerable(table, x, p, "gp.1.")[..., 0]
    for i in (0, 2, 4):
        x = x @ p[f"mlp.{i}.weight"].T + p[f"mlp.{i}.bias"]
        x = x.clamp(min=0) if i < 4 else x
    return x[:, 0]


def volumes(table, points, p, gates=3):
    x = steerable(table, embed_points(table, points), p, "net.0.", fully_connected=True)
    for i in range(1, gates + 1):
        x = silu(table, x, p[f"net.{i}.a"], p[f"net.{i}.b"])
    return steerable(table, x, p, f"net.{gates + 1}.", fully_connected=True)[:, 0, -1]


def versor_action(table, count, seed):
    """The matrix [blades, blades] of the action of a versor of `count` random unit vectors."""
    generator = torch.Generator().manual_seed(seed)
    n = len(table.masks)
    sign = ((-1.0) ** table.grades).double()
    action = torch.eye(n, dtype=torch.float64)
    for _ in range(count):
        w = torch.zeros(n, dtype=torch.float64)
        while abs(table.q(w)) < 0.1:
            vector = torch.randn(table.dim, generator=generator, dtype=torch.float64)
            w[1 : table.dim + 1] = vector
        inverse = w / table.q(w)
        left = torch.einsum("i,ijk->jk", w, table.cayley)
        right = torch.einsum("ijk,k->ji", table.cayley, inverse)
        action = (left @ right @ torch.diag(sign)) @ action
    return action
