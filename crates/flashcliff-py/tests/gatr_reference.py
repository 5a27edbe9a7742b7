"""GATr in plain torch, from parameters by the names of its state dict.

Nothing here comes from the package under test. Multivectors are [..., items, channels, 16], linear maps are dense
16x16 matrices and joins sums over a table, both from lists typed here; attention is a dense softmax.
"""

import math
from itertools import combinations

import torch
from nn_reference import Table

TABLE = Table(3, 0, 1)

# The linear maps that commute with E(3): (output, input).
MAPS = [
    [(0, 0)],
    [(1, 1), (2, 2), (3, 3), (4, 4)],
    [(5, 5), (6, 6), (7, 7), (8, 8), (9, 9), (10, 10)],
    [(11, 11), (12, 12), (13, 13), (14, 14)],
    [(15, 15)],
    [(1, 0)],
    [(5, 2), (6, 3), (7, 4)],
    [(11, 8), (12, 9), (13, 10)],
    [(15, 14)],
]

# The join for a reference of 1: by output, (left, right) with signs.
JOIN = """
0: 0,15+ 1,14+ 2,13- 3,12+ 4,11- 5,10+ 6,9- 7,8+ 8,7+ 9,6- 10,5+ 11,4+ 12,3- 13,2+ 14,1- 15,0+
1: 1,15- 5,13- 6,12+ 7,11- 11,7- 12,6+ 13,5- 15,1-
2: 2,15- 5,14- 8,12+ 9,11- 11,9- 12,8+ 14,5- 15,2-
3: 3,15- 6,14- 8,13+ 10,11- 11,10- 13,8+ 14,6- 15,3-
4: 4,15- 7,14- 9,13+ 10,12- 12,10- 13,9+ 14,7- 15,4-
5: 5,15+ 11,12+ 12,11- 15,5+
6: 6,15+ 11,13+ 13,11- 15,6+
7: 7,15+ 12,13+ 13,12- 15,7+
8: 8,15+ 11,14+ 14,11- 15,8+
9: 9,15+ 12,14+ 14,12- 15,9+
10: 10,15+ 13,14+ 14,13- 15,10+
11: 11,15- 15,11-
12: 12,15- 15,12-
13: 13,15- 15,13-
14: 14,15- 15,14-
15: 15,15+
"""

EUCLIDEAN = [0, 2, 3, 4, 8, 9, 10, 14]


def maps():
    """The linear maps over their Frobenius norms, [9, 16, 16]."""
    found = torch.zeros(9, 16, 16, dtype=torch.float64)
    for index, entries in enumerate(MAPS):
        for output, source in entries:
            found[index, output, source] = 1 / math.sqrt(len(entries))
    return found


def join_table():
    """[output, left, right]."""
    found = torch.zeros(16, 16, 16, dtype=torch.float64)
    for line in JOIN.strip().splitlines():
        output, *terms = line.replace(":", "").split()
        for term in terms:
            left, right = term[:-1].split(",")
            found[int(output), int(left), int(right)] = 1 if term[-1] == "+" else -1
    return found


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


def rigid(seed, mirror=False):
    """A random rotation, or with `mirror` a rotation and reflection, and a translation."""
    generator = torch.Generator().manual_seed(seed)
    turn, _ = torch.linalg.qr(torch.randn(3, 3, generator=generator, dtype=torch.float64))
    if (torch.linalg.det(turn) < 0) != mirror:
        turn = -turn
    return turn, torch.randn(3, generator=generator, dtype=torch.float64)


def action(turn, shift):
    """The 16x16 matrix of x -> turn x + shift. A plane n - d e0 has the points n . x = d."""
    of_planes = torch.eye(4, dtype=torch.float64)
    of_planes[1:, 1:] = turn
    of_planes[0, 1:] = -shift @ turn
    return on_multivectors(of_planes)


class Reference:
    """The functions of a network with parameters by name."""

    def __init__(self, parameters, heads, activation="gelu", eps=1e-3, base=4096):
        self.p, self.heads, self.activation, self.eps = parameters, heads, activation, eps
        self.base = base
        self.maps, self.joins = maps(), join_table()

    def linear(self, name, mv, s):
        p = {k[len(name) + 1 :]: v for k, v in self.p.items() if k.startswith(f"{name}.")}
        out = torch.einsum("yxa,aij,...xj->...yi", p["weight"], self.maps, mv)
        first = p.get("bias", torch.zeros(1, 1, dtype=torch.float64))[:, 0]
        if "s2mvs.weight" in p:
            first = first + s @ p["s2mvs.weight"].T + p.get("s2mvs.bias", 0)
        out = out + torch.nn.functional.pad(first[..., None], (0, 15))
        if "mvs2s.weight" not in p:
            return out, None
        out_s = mv[..., 0] @ p["mvs2s.weight"].T + p.get("mvs2s.bias", 0)
        if p.get("s2s.weight", torch.empty(0)).numel():
            out_s = out_s + s @ p["s2s.weight"].T
        return out, out_s

    def norm(self, mv, s):
        mean = mv[..., EUCLIDEAN].square().sum(-1).mean(-1).clamp(min=0.01)
        if s is not None:
            centred = s - s.mean(-1, keepdim=True)
            s = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()
        return mv / mean.sqrt()[..., None, None], s

    def bilinear(self, name, mv, s, reference):
        def of(part):
            return self.linear(f"{name}.linear_{part}", mv, s)[0]

        product = torch.einsum("...i,ijk,...k->...j", of("left"), TABLE.cayley, of("right"))
        join = torch.einsum("...j,ijk,...k->...i", of("join_left"), self.joins, of("join_right"))
        join = join * reference[..., 14:15]
        return self.linear(f"{name}.linear_out", torch.cat((product, join), dim=-2), s)

    def gate(self, mv, s):
        def cdf(x):
            return (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3))) / 2

        first = mv[..., :1]
        if self.activation == "gelu":
            exact = None if s is None else s * (1 + torch.erf(s / math.sqrt(2))) / 2
            return mv * first * cdf(first), exact
        function = {"relu": lambda x: x.clamp(min=0), "sigmoid": torch.sigmoid}[self.activation]
        return mv * function(first), None if s is None else function(s)

    def mlp(self, name, mv, s, reference, linears=(2,)):
        mv, s = self.bilinear(f"{name}.layers.0", mv, s, reference)
        for layer in linears:
            mv, s = self.linear(f"{name}.layers.{layer}", *self.gate(mv, s))
        return mv, s

    def split(self, pair, parts=1, heads=None):
        """Parts, each [..., heads, items, channels, 16] and [..., heads, items, scalars]."""
        heads = self.heads if heads is None else heads
        mv, s = pair
        mv = mv.unflatten(-2, (parts, -1, heads)).movedim(-2, -5)
        if s is None:
            return [(mv[..., part, :, :], None) for part in range(parts)]
        s = s.unflatten(-1, (parts, -1, heads)).movedim(-1, -4)
        return [(mv[..., part, :, :], s[..., part, :]) for part in range(parts)]

    def rotate(self, name, s):
        """Turns the complex numbers s[c] + i s[c + half] by the position times a frequency."""
        if f"{name}.pos_encoding.inv_freq" not in self.p:
            return s
        half = s.shape[-1] // 2
        # The buffer has the precision of float32, also where a module is cast to float64.
        frequencies = self.base ** (-torch.arange(half, dtype=torch.float64) / half)
        angles = torch.arange(s.shape[-2], dtype=torch.float64)[:, None] * frequencies
        turned = torch.complex(s[..., :half], s[..., half:]) * torch.polar(
            torch.ones_like(angles), angles
        )
        return torch.cat((turned.real, turned.imag), dim=-1)

    def logits(self, name, query, key):
        (q, q_s), (k, k_s) = query, key
        inner = torch.einsum("...icx,...jcx->...ij", q[..., EUCLIDEAN[:-1]], k[..., EUCLIDEAN[:-1]])
        q_point, k_point = (x[..., 11:15] * x[..., 14:15] for x in (q, k))
        q_point, k_point = (
            y / (x[..., 14:15] ** 2 + self.eps) for x, y in ((q, q_point), (k, k_point))
        )
        q_point, k_point = q_point.unsqueeze(-3), k_point.unsqueeze(-4)
        across = q_point[..., :3] * k_point[..., 3:] - k_point[..., :3] * q_point[..., 3:]
        weights = self.p[f"{name}.log_weights"].exp()[:, None]
        far = (across.square().sum(-1) * weights).sum(-1)
        count = 12 * q.shape[-2]
        if q_s is not None:
            inner = inner + torch.einsum("...ic,...jc->...ij", q_s, k_s)
            count += q_s.shape[-1]
        return (inner - far) / math.sqrt(count)

    def attend(self, name, query, key, value, keep=None):
        """Self-attention or cross-attention and the projection back."""
        logits = self.logits(f"{name}.attention", query, key)
        if keep is not None:
            logits = (
                logits.masked_fill(~keep, -math.inf) if keep.dtype == torch.bool else logits + keep
            )
        weights = logits.softmax(-1)
        v, v_s = (
            x if x is None else x.expand(*weights.shape[:-2], *x.shape[weights.dim() - 2 :])
            for x in value
        )
        mv = torch.einsum("...ij,...jcx->...icx", weights, v).movedim(-4, -3).flatten(-3, -2)
        s = None
        if v_s is not None:
            s = torch.einsum("...ij,...jc->...ic", weights, v_s).movedim(-3, -2).flatten(-2)
        return self.linear(f"{name}.out_linear", mv, s)

    def attention(self, name, mv, s, extra=(None, None), keep=None):
        def joined(x, more, dim):
            return x if more is None else torch.cat((x, more), dim=dim)

        seen = joined(mv, extra[0], -2), joined(s, extra[1], -1)
        module = f"{name}.qkv_module"
        if f"{module}.in_linear.weight" in self.p:
            q, k, v = self.split(self.linear(f"{module}.in_linear", *seen), 3)
        else:
            (q,) = self.split(self.linear(f"{module}.q_linear", *seen))
            (k,) = self.split(self.linear(f"{module}.k_linear", *seen), heads=1)
            (v,) = self.split(self.linear(f"{module}.v_linear", mv, s), heads=1)
        q, k = ((x, self.rotate(name, y)) for x, y in (q, k))
        return self.attend(name, q, k, v, keep)

    def cross(self, name, other, mv, other_s, s, keep=None):
        (q,) = self.split(self.linear(f"{name}.q_linear", mv, s))
        (k,) = self.split(self.linear(f"{name}.k_linear", other, other_s), heads=1)
        (v,) = self.split(self.linear(f"{name}.v_linear", other, other_s), heads=1)
        return self.attend(name, q, k, v, keep)

    def block(self, name, mv, s, reference, extra=(None, None), keep=None, linears=(2,)):
        more = self.attention(f"{name}.attention", *self.norm(mv, s), extra, keep)
        mv, s = mv + more[0], None if s is None else s + more[1]
        more = self.mlp(f"{name}.mlp", *self.norm(mv, s), reference, linears)
        return mv + more[0], None if s is None else s + more[1]

    def net(self, mv, s, blocks, *, keep=None, reference=None, reinsert=((), ()), linears=(2,)):
        if reference is None:
            reference = mv.mean(tuple(range(1, mv.dim() - 1)), keepdim=True)
        extra = (
            mv[..., list(reinsert[0]), :] if reinsert[0] else None,
            s[..., list(reinsert[1])] if reinsert[1] else None,
        )
        mv, s = self.linear("linear_in", mv, s)
        for at in range(blocks):
            mv, s = self.block(f"blocks.{at}", mv, s, reference, extra, keep, linears)
        return self.linear("linear_out", mv, s)
