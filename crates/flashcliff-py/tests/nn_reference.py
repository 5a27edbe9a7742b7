"""The layers in plain torch, of the operators of `reference`. Modules are compared with them.

Nothing here comes from the package under test. Tensors are in CGENN's layout, [batch, channels, blades].
"""

import math

import reference as operators
import torch


class Table:
    """Blades, signs and grade paths of a signature (p, q, r), or of the squares of the vectors in any order."""

    def __init__(self, p=0, q=0, r=0, squares=None):
        self.space = space = operators.basis((p, q, r)) if squares is None else operators.Basis(squares)
        self.dim = space.dim
        self.metric = [float(square) for square in space.squares]
        self.masks = [sum(1 << v for v in blade) for blade in space.blades]
        self.grades = torch.tensor(space.grades)
        self.sizes = [math.comb(self.dim, grade) for grade in range(self.dim + 1)]
        # Here cayley[i, j, k] is the factor of blade j in blade i times blade k.
        self.cayley = operators.table(space).transpose(1, 2)
        self.paths = operators.paths(space)

    def q(self, x):
        """The scalar part of reverse(x) x, [..., 1]."""
        reverse = (-1.0) ** (self.grades * (self.grades - 1) // 2)
        return torch.einsum("...i,ik,...k->...", x * reverse, self.cayley[:, 0, :], x)[..., None]

    def by_grade(self, x):
        """The parts of x by grade, each a whole multivector."""
        return [torch.where(self.grades == g, x, 0.0) for g in range(self.dim + 1)]


smooth_norm = operators.smooth


def _first(x):
    """Multivectors with blades first, as the operators have them."""
    return x.movedim(-1, 0)


def gate(x, name="gelu"):
    """x times a function of its scalar."""
    return operators.gate(None, _first(x), name).movedim(0, -1)


def rms(table, x, eps=1e-6):
    """Divides each grade by the root of its mean square over channels."""
    return operators.grade_rms(table.space, _first(x), "rms", eps).movedim(0, -1)


def invariant(table, x, eps=1e-6):
    """Divides each grade by the root of its mean |q| over channels."""
    return operators.grade_rms(table.space, _first(x), "invariant", eps).movedim(0, -1)


NORMS = {"none": lambda table, x, eps=1e-6: x, "rms": rms, "invariant": invariant}


def linear(table, x, weight, bias=None, every_blade=False):
    """A linear map: weight [out, in, grades] or [out, in], bias on the scalar or on every blade."""
    bias = None if bias is None else bias.reshape(-1)
    mode = "every_blade" if every_blade else "scalar"
    y = operators.mv_linear(table.space, _first(x), weight, bias, weight.dim() == 3, mode)
    return y.movedim(0, -1)


def sgp(table, x, y, weight):
    """The steerable product channel by channel: weight [channels, paths]."""
    z = operators.sgp_norm(table.space, _first(x), _first(y), weight, gate="none", norm="none")
    return z.movedim(0, -1)


def fcgp(table, x, y, weight):
    """The fully connected product: weight [out, in, paths], CGENN's order."""
    weight = weight.permute(2, 1, 0)
    z = operators.fcgp_norm(table.space, _first(x), _first(y), weight, gate="none", norm="none")
    return z.movedim(0, -1)


def grade_norm(table, x, a):
    return operators.grade_norm(table.space, _first(x), a).movedim(0, -1)


def silu(table, x, a, b, invariant="mag2"):
    return operators.mv_silu(table.space, _first(x), a[0], b[0], invariant).movedim(0, -1)


def layer_norm(table, x, a):
    return operators.mv_layer_norm(table.space, _first(x), a.reshape(-1, 1)).movedim(0, -1)


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
