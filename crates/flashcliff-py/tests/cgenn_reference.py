"""An algebra with CGENN's attributes and methods, and layers that use nothing but these. Both are
slow and plain, in CGENN's layout, and share no code with the package."""

from __future__ import annotations

import itertools
import math

import torch
from nn_reference import Table, smooth_norm

# Metrics in every order of signs.
SMALL = [m for dim in (1, 2, 3) for m in itertools.product((1, -1, 0), repeat=dim)]
LARGE = [
    (-1, 1, 1, 1),
    (1, -1, -1, -1),
    (1, -1, 0, 1),
    (0, 1, 1, 1),
    (1, 1, 1, 0),
    (1, 1, -1, -1),
    (-1, 0, 1, 0),
    (1, 1, 1, 1, -1),
    (-1, 1, 0, -1, 1),
]
METRICS = SMALL + LARGE


class Algebra(torch.nn.Module):
    """The attributes that the layers below need from an algebra, from a table made by
    `nn_reference`."""

    def __init__(self, metric):
        super().__init__()
        self.table = table = Table(squares=[int(square) for square in metric])
        self.dim = table.dim
        self.n_blades = len(table.masks)
        self.n_subspaces = self.dim + 1
        self.grades = torch.arange(self.n_subspaces)
        self.register_buffer("metric", torch.tensor(table.metric))
        self.register_buffer("subspaces", torch.tensor(table.sizes))
        self.register_buffer("bbo_grades", table.grades.to(torch.get_default_dtype()))
        self.register_buffer("even_grades", table.grades % 2 == 0)
        self.register_buffer("odd_grades", table.grades % 2 == 1)
        self.register_buffer("cayley", table.cayley.to(torch.get_default_dtype()))

    @property
    def geometric_product_paths(self):
        shape = [self.n_subspaces] * 3
        paths = [[(i, j, k) in self.table.paths for k in range(shape[0])]
                 for i in range(shape[0]) for j in range(shape[0])]  # fmt: skip
        return torch.tensor(paths).reshape(shape)

    def geometric_product(self, a, b):
        return (a[..., :, None, None] * self.cayley * b[..., None, None, :]).sum((-3, -1))

    def signs(self, exponent):
        return torch.tensor([(-1.0) ** exponent(int(k)) for k in self.table.grades])

    def alpha(self, mv):
        return mv * self.signs(lambda k: k)

    def beta(self, mv):
        return mv * self.signs(lambda k: k * (k - 1) // 2)

    def gamma(self, mv):
        return mv * self.signs(lambda k: k * (k + 1) // 2)

    def b(self, x, y):
        return self.geometric_product(self.beta(x), y)[..., :1]

    def q(self, mv):
        return self.b(mv, mv)

    def norm(self, mv):
        return smooth_norm(self.q(mv))

    def qs(self, mv, grades=None):
        parts = self.table.by_grade(mv)
        return [self.q(parts[int(g)]) for g in (self.grades if grades is None else grades)]

    def norms(self, mv, grades=None):
        return [smooth_norm(q) for q in self.qs(mv, grades)]

    def embed(self, tensor, index):
        where = torch.nn.functional.one_hot(torch.tensor(index), self.n_blades)
        return tensor @ where.to(tensor.dtype)

    def embed_grade(self, tensor, grade):
        return self.embed(tensor, [i for i, k in enumerate(self.table.grades) if k == grade])

    def get(self, mv, index):
        return torch.stack([mv[..., i] for i in index], -1)

    def get_grade(self, mv, grade):
        return mv[..., self.table.grades == grade]


class _Layer(torch.nn.Module):
    def __init__(self, algebra):
        super().__init__()
        self.algebra = algebra

    def _spread(self, by_grade):
        return by_grade.repeat_interleave(self.algebra.subspaces, dim=-1)


class Linear(_Layer):
    def __init__(self, algebra, n, m, subspaces=True, bias=True):
        super().__init__(algebra)
        shape = (m, n, algebra.n_subspaces) if subspaces else (m, n)
        self.weight = torch.nn.Parameter(torch.randn(shape) / math.sqrt(n))
        self.register_parameter("bias", torch.nn.Parameter(torch.zeros(1, m, 1)) if bias else None)

    def forward(self, x):
        weight = self.weight
        weight = self._spread(weight) if weight.dim() == 3 else weight[..., None]
        y = (x[:, None] * weight).sum(2)
        return y if self.bias is None else y + self.algebra.embed(self.bias, (0,))


class Normalization(_Layer):
    def __init__(self, algebra, n, init=0):
        super().__init__(algebra)
        self.a = torch.nn.Parameter(torch.full((n, algebra.n_subspaces), float(init)))

    def forward(self, x):
        norms = torch.cat(self.algebra.norms(x), dim=-1)
        return x / (self._spread(torch.sigmoid(self.a) * (norms - 1) + 1) + 1e-6)


class Gate(_Layer):
    def __init__(self, algebra, n):
        super().__init__(algebra)
        self.a = torch.nn.Parameter(torch.ones(1, n, algebra.n_subspaces))
        self.b = torch.nn.Parameter(torch.zeros(1, n, algebra.n_subspaces))

    def forward(self, x):
        forms = self.algebra.qs(x, grades=self.algebra.grades[1:])
        inside = self.a * torch.cat([x[..., :1], *forms], dim=-1) + self.b
        return x * torch.sigmoid(self._spread(inside))


class LayerNorm(_Layer):
    def __init__(self, algebra, n):
        super().__init__(algebra)
        self.a = torch.nn.Parameter(torch.ones(1, n))

    def forward(self, x):
        return self.a[..., None] * x / (self.algebra.norm(x).mean(1, keepdim=True) + 1e-6)


class Product(_Layer):
    """The steerable product, fully connected if there is a number of outputs."""

    def __init__(self, algebra, n, m=None, include_first_order=True, normalization_init=0):
        super().__init__(algebra)
        self.normalization = torch.nn.Identity()
        if normalization_init is not None:
            self.normalization = Normalization(algebra, n, normalization_init)
        self.linear_right = Linear(algebra, n, n, bias=False)
        if include_first_order:
            self.linear_left = Linear(algebra, n, m or n)
        paths = int(algebra.geometric_product_paths.sum())
        self.weight = torch.nn.Parameter(torch.randn((n, paths) if m is None else (m, n, paths)))

    def table(self):
        """The weights on the table of the product."""
        paths = self.algebra.geometric_product_paths
        dense = self.weight.new_zeros(*self.weight.shape[:-1], *paths.shape)
        dense[..., paths] = self.weight
        for axis in (-3, -2, -1):
            dense = dense.repeat_interleave(self.algebra.subspaces, dim=axis)
        return dense * self.algebra.cayley

    def forward(self, x):
        right = self.normalization(self.linear_right(x))
        pairs = x[..., :, None] * right[..., None, :]
        if self.weight.dim() == 2:
            z = torch.einsum("bnik,nijk->bnj", pairs, self.table())
        else:
            z = torch.einsum("bnik,mnijk->bmj", pairs, self.table())
        return (self.linear_left(x) + z) / math.sqrt(2) if hasattr(self, "linear_left") else z
