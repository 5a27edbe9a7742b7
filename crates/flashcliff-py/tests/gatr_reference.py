"""GATr in plain torch, from parameters by the names of its state dict.

Nothing here comes from the package under test. Linear maps are matrices and joins sums over a table, both from lists
typed here.
"""

import math

import torch
import transformer_reference
from nn_reference import Table
from transformer_reference import gelu, gelu_by_tanh, on_multivectors

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


class Reference(transformer_reference.Reference):
    """GATr."""

    def __init__(self, parameters, heads, activation="gelu", eps=1e-3, base=4096):
        super().__init__(parameters, heads)
        self.activation, self.eps, self.base = activation, eps, base
        self.maps, self.joins = maps(), join_table()

    def squares(self, mv):
        return mv[..., EUCLIDEAN].square().sum(-1)

    def bilinear(self, name, mv, s, reference):
        def of(part):
            return self.linear(f"{name}.linear_{part}", mv, s)[0]

        product = torch.einsum("...i,ijk,...k->...j", of("left"), TABLE.cayley, of("right"))
        join = torch.einsum("...j,ijk,...k->...i", of("join_left"), self.joins, of("join_right"))
        join = join * reference[..., 14:15]
        return self.linear(f"{name}.linear_out", torch.cat((product, join), dim=-2), s)

    def gate(self, mv, s):
        first = mv[..., :1]
        if self.activation == "gelu":
            return mv * gelu_by_tanh(first), None if s is None else gelu(s)
        function = {"relu": lambda x: x.clamp(min=0), "sigmoid": torch.sigmoid}[self.activation]
        return mv * function(first), None if s is None else function(s)

    def mlp(self, name, mv, s, reference, linears=(2,)):
        mv, s = self.bilinear(f"{name}.layers.0", mv, s, reference)
        for layer in linears:
            mv, s = self.linear(f"{name}.layers.{layer}", *self.gate(mv, s))
        return mv, s

    def of_heads(self, name, q, k, v):
        return *((x, self.rotate(name, y)) for x, y in (q, k)), v

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

    def cross(self, name, other, mv, other_s, s, keep=None):
        (q,) = self.split(self.linear(f"{name}.q_linear", mv, s))
        (k,) = self.split(self.linear(f"{name}.k_linear", other, other_s), heads=1)
        (v,) = self.split(self.linear(f"{name}.v_linear", other, other_s), heads=1)
        return self.attend(name, q, k, v, keep)

    def network(self, mv, s, blocks, *, reference=None, reinsert=((), ()), **of_blocks):
        if reference is None:
            reference = mv.mean(tuple(range(1, mv.dim() - 1)), keepdim=True)
        extra = (
            mv[..., list(reinsert[0]), :] if reinsert[0] else None,
            s[..., list(reinsert[1])] if reinsert[1] else None,
        )
        return super().network(mv, s, blocks, reference=reference, extra=extra, **of_blocks)
