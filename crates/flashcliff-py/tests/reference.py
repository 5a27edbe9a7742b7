"""The operators by their definitions: dense tables, float64, autograd of PyTorch. Shares no code
with the library."""

from __future__ import annotations

import itertools
import math
from functools import cache

import torch
from torch._functorch.pyfunctorch import temporarily_clear_interpreter_stack


class Basis:
    """The blades of an algebra in short-lex order, as tuples of vectors, by the squares of these."""

    def __init__(self, squares) -> None:
        self.squares = list(squares)
        self.dim = len(self.squares)
        vectors = range(self.dim)
        self.blades = [b for k in range(self.dim + 1) for b in itertools.combinations(vectors, k)]
        self.grades = [len(blade) for blade in self.blades]
        self.first = 0 if 0 in self.squares else 1

    def names(self):
        named = ("".join(str(v + self.first) for v in blade) for blade in self.blades)
        return tuple("e" + name if name else "1" for name in named)

    def multiply(self, a, b):
        """The product of two blades by sorting the vectors: (sign, blade)."""
        word, sign = list(a + b), 1
        done = False
        while not done:
            done = True
            for i in range(len(word) - 1):
                if word[i] > word[i + 1]:
                    word[i], word[i + 1] = word[i + 1], word[i]
                    sign, done = -sign, False
                elif word[i] == word[i + 1]:
                    sign *= self.squares[word[i]]
                    del word[i : i + 2]
                    done = False
                    break
        return sign, tuple(word)

    def dual(self, a):
        """The right complement: e_a ^ dual(e_a) = I."""
        rest = tuple(v for v in range(self.dim) if v not in a)
        swaps = sum(v > w for v in a for w in rest)
        return (-1) ** swaps, rest

    def undual(self, a):
        """The left complement: undual(e_a) ^ e_a = I."""
        rest = tuple(v for v in range(self.dim) if v not in a)
        swaps = sum(v > w for v in rest for w in a)
        return (-1) ** swaps, rest

    def carried(self, grades):
        return [i for i, grade in enumerate(self.grades) if grades is None or grade in grades]


@cache
def basis(signature):
    """The basis of Cl(p, q, r), whose vectors are null, then positive, then negative; or a basis as it is."""
    if isinstance(signature, Basis):
        return signature
    p, q, r = signature
    return Basis([0] * r + [1] * p + [-1] * q)


@cache
def terms(signature, kind="geometric"):
    """The signs of a product between full multivectors that are not zero, by blades: left, right, output."""
    space = basis(signature)
    at = {blade: index for index, blade in enumerate(space.blades)}
    result = {}
    for (i, a), (k, b) in itertools.product(enumerate(space.blades), repeat=2):
        if kind == "regressive":
            (s, da), (t, db) = space.dual(a), space.dual(b)
            if set(da) & set(db):
                continue
            u, joined = space.multiply(da, db)
            v, blade = space.undual(joined)
            sign = s * t * u * v
        else:
            sign, blade = space.multiply(a, b)
            g, h, o = len(a), len(b), len(blade)
            if kind == "commutator":
                other, _ = space.multiply(b, a)
                sign = (sign - other) / 2
            wanted = {
                "exterior": g + h,
                "left_contraction": h - g,
                "right_contraction": g - h,
                "scalar": 0,
            }
            if wanted.get(kind, o) != o:
                continue
            if kind == "exterior" and set(a) & set(b):
                continue
        if sign != 0:
            result[i, k, at[blade]] = sign
    return result


@cache
def table(signature, kind="geometric"):
    """The signs of a product, [left, right, output]."""
    count = len(basis(signature).blades)
    # The table is kept, and PyTorch 2.6 ends tensors that are made within a transform with the transform.
    with temporarily_clear_interpreter_stack():
        result = torch.zeros(count, count, count, dtype=torch.float64)
        for place, sign in terms(signature, kind).items():
            result[place] = sign
    return result


@cache
def paths(signature, left=None, right=None):
    """The grade triples (left, output, right) with a term, in order."""
    space = basis(signature)
    found = set()
    for i, k, j in terms(signature):
        found.add((space.grades[i], space.grades[j], space.grades[k]))
    return sorted(
        p for p in found if (left is None or p[0] in left) and (right is None or p[2] in right)
    )


def between(signature, kind, left, right):
    """A table between operands of some grades, its reachable outputs, and their blades."""
    space = basis(signature)
    rows, columns = space.carried(left), space.carried(right)
    # The numbers of tensors that are made within a transform cannot be read in PyTorch 2.6.
    reached = {space.grades[j] for i, k, j in terms(signature, kind) if i in rows and k in columns}
    outputs = space.carried(reached)
    return table(signature, kind)[rows][:, columns][:, :, outputs], outputs


def product(signature, x, y, kind="geometric", left=None, right=None):
    cayley, _ = between(signature, kind, left, right)
    return torch.einsum("ikj,ibc,kbc->jbc", cayley.to(x), x, y)


def weighted_tables(signature, left=None, right=None):
    """A table of the geometric product by path, [path, left, right, output]."""
    space = basis(signature)
    cayley, outputs = between(signature, "geometric", left, right)
    grade = [torch.tensor([space.grades[i] for i in space.carried(s)]) for s in (left, right)]
    out = torch.tensor([space.grades[j] for j in outputs])
    masks = [
        (grade[0] == a)[:, None, None] & (grade[1] == b)[None, :, None] & (out == o)[None, None, :]
        for a, o, b in paths(signature, left, right)
    ]
    return torch.stack([cayley * mask for mask in masks]), outputs


GATES = {
    "none": torch.ones_like,
    "gelu": lambda s: (1 + torch.erf(s / math.sqrt(2))) / 2,
    "gelu_tanh": lambda s: (1 + torch.tanh(math.sqrt(2 / math.pi) * (s + 0.044715 * s**3))) / 2,
    "silu": torch.sigmoid,
    "gelu_fast": lambda s: torch.sigmoid(1.702 * s),
}


def gate(signature, x, gate="gelu", grades=None):
    scalar = x[:1] if grades is None or 0 in grades else torch.zeros_like(x[:1])
    return GATES[gate](scalar) * x


def norm_signs(space, blades, norm):
    """The signs of the squares by which a grade is normalised."""
    if norm == "rms" or blades == [len(space.blades) - 1]:
        return [1] * len(blades)
    signs = [math.prod(space.squares[v] for v in space.blades[j]) for j in blades]
    return signs if {1, -1} <= set(signs) else [abs(sign) for sign in signs]


def grade_rms(signature, x, norm="invariant", eps=1e-6, outputs=None):
    """The norm per grade. ``outputs`` are the blades of ``x``, if not all."""
    space = basis(signature)
    blades = list(range(len(x)) if outputs is None else outputs)
    parts = []
    for grade in sorted({space.grades[j] for j in blades}):
        own = [i for i, j in enumerate(blades) if space.grades[j] == grade]
        signs = norm_signs(space, [blades[i] for i in own], norm)
        part = x[own]
        q = (part**2 * part.new_tensor(signs)[:, None, None]).sum(0, keepdim=True)
        if -1 in signs:
            mean = torch.hypot(q, q.new_tensor(eps)).mean(-1, keepdim=True)
        else:
            mean = q.mean(-1, keepdim=True) + eps
        parts.append(part / torch.sqrt(mean))
    return torch.cat(parts)


def sgp_norm(signature, x, y, weight, gate="gelu", norm="invariant", eps=1e-6, left=None, right=None):
    tables, outputs = weighted_tables(signature, left, right)
    x, y = (globals()["gate"](signature, t, gate, grades) for t, grades in ((x, left), (y, right)))
    o = torch.einsum("pikj,cp,ibc,kbc->jbc", tables.to(x), weight, x, y)
    return o if norm == "none" else grade_rms(signature, o, norm, eps, outputs)


def fcgp_norm(
    signature,
    x,
    y,
    weight,
    gate="gelu",
    norm="invariant",
    eps=1e-6,
    left=None,
    right=None,
    block_bytes=None,
):
    tables, outputs = weighted_tables(signature, left, right)
    x, y = (globals()["gate"](signature, t, gate, grades) for t, grades in ((x, left), (y, right)))
    o = torch.einsum("pikj,pnm,ibn,kbn->jbm", tables.to(x), weight, x, y)
    return o if norm == "none" else grade_rms(signature, o, norm, eps, outputs)


def mv_linear(
    signature,
    x,
    weight,
    bias=None,
    per_grade=True,
    bias_mode="scalar",
    grades=None,
    weight_layout="out_in_grade",
):
    space = basis(signature)
    if weight_layout == "grade_in_out":
        weight = weight.permute(*reversed(range(weight.dim())))
    carried = space.carried(grades)
    present = sorted({space.grades[i] for i in carried})
    if per_grade:
        weight = weight[:, :, [present.index(space.grades[i]) for i in carried]]
        o = torch.einsum("oni,ibn->ibo", weight, x)
    else:
        o = torch.einsum("on,ibn->ibo", weight, x)
    if bias is None:
        return o
    where = torch.ones(len(carried), dtype=o.dtype, device=o.device)
    if bias_mode == "scalar":
        where[1:] = 0
    return o + where[:, None, None] * bias


class Rounded(torch.autograd.Function):
    """A tensor rounded to a type, with its gradient rounded too."""

    @staticmethod
    def forward(context, tensor, dtype):
        context.dtype = dtype
        return tensor.to(dtype).to(tensor.dtype)

    @staticmethod
    def backward(context, grad):
        return grad.to(context.dtype).to(grad.dtype), None


def rounded(tensor, dtype):
    """A tensor rounded to a type, with its gradient unchanged."""
    return tensor + (tensor.to(dtype).to(tensor.dtype) - tensor).detach()


def mv_linear_sgp_norm(
    signature,
    x,
    linear_weight,
    linear_bias,
    weight,
    per_grade=True,
    bias_mode="scalar",
    grades=None,
    weight_layout="out_in_grade",
    gate="gelu",
    norm="invariant",
    eps=1e-6,
    recompute=False,
    between=None,
):
    """`between` is the type to which the map's parameters, its result and the gradient of that
    are rounded."""
    linear = (per_grade, bias_mode, grades, weight_layout)
    if between is not None:
        linear_weight = rounded(linear_weight, between)
        linear_bias = None if linear_bias is None else rounded(linear_bias, between)
    y = mv_linear(signature, x, linear_weight, linear_bias, *linear)
    if between is not None:
        y = Rounded.apply(y, between)
    return sgp_norm(signature, x, y, weight, gate, norm, eps, grades, grades)


def quadratic(signature, x):
    """The quadratic form q of each grade, [G, batch, channels]."""
    space = basis(signature)
    metric = torch.tensor(
        [math.prod(space.squares[v] for v in blade) for blade in space.blades],
        dtype=x.dtype,
        device=x.device,
    )
    terms = metric[:, None, None] * x**2
    grade = torch.tensor(space.grades, device=x.device)
    return torch.stack([terms[grade == g].sum(0) for g in range(space.dim + 1)])


def smooth(q):
    return (q**2 + 1e-16) ** 0.25


def grade_norms(signature, x):
    return smooth(quadratic(signature, x))


def norm(signature, x):
    return smooth(quadratic(signature, x).sum(0, keepdim=True))


def spread(signature, per_grade):
    """Copies values of grades to their blades."""
    return per_grade[torch.tensor(basis(signature).grades, device=per_grade.device)]


def grade_norm(signature, x, a):
    s = torch.sigmoid(a).T[:, None, :]
    return x / spread(signature, s * (grade_norms(signature, x) - 1) + 1 + 1e-6)


def mv_silu(signature, x, a, b, invariant="mag2"):
    u = quadratic(signature, x) if invariant == "mag2" else grade_norms(signature, x)
    u = torch.cat([x[:1], u[1:]])
    return spread(signature, torch.sigmoid(a.T[:, None, :] * u + b.T[:, None, :])) * x


def mv_layer_norm(signature, x, a):
    return a[:, 0] * x / (norm(signature, x).mean(-1, keepdim=True) + 1e-6)


def steerable_product(signature, x, r, weight, a=None, l=None):  # noqa: E741
    if a is not None:
        r = grade_norm(signature, r, a)
    z = sgp_norm(signature, x, r, weight, gate="none", norm="none")
    return z if l is None else (l + z) / math.sqrt(2)


def _signs(signature, x, exponent):
    space = basis(signature)
    signs = [(-1) ** exponent(grade) for grade in space.grades]
    return torch.tensor(signs, dtype=x.dtype, device=x.device)[:, None, None] * x


def reverse(signature, x):
    return _signs(signature, x, lambda k: k * (k - 1) // 2)


def grade_involution(signature, x):
    return _signs(signature, x, lambda k: k)


def clifford_conjugate(signature, x):
    return _signs(signature, x, lambda k: k * (k + 1) // 2)


def _complement(signature, x, method):
    space = basis(signature)
    at = {blade: index for index, blade in enumerate(space.blades)}
    o = [None] * len(space.blades)
    for i, blade in enumerate(space.blades):
        sign, other = getattr(space, method)(blade)
        o[at[other]] = sign * x[i]
    return torch.stack(o)


def dual(signature, x):
    return _complement(signature, x, "dual")


def undual(signature, x):
    return _complement(signature, x, "undual")


def sandwich(signature, x, y, left=None, right=None):
    space = basis(signature)
    full = []
    for tensor, grades in ((x, left), (y, right)):
        whole = tensor.new_zeros(len(space.blades), *tensor.shape[1:])
        full.append(
            whole.index_copy(0, torch.tensor(space.carried(grades), device=tensor.device), tensor)
        )
    x, y = full
    o = product(signature, product(signature, x, y), reverse(signature, x))
    if left is None:
        return o
    return o[space.carried(right)]


def of_program(core, eps, gate, **tensors):
    """The operator by the expressions of its program, on tensors of PyTorch. The tests of Rust compare programs with their own references;
    here autograd differentiates them, to any order."""
    expressions, output = core.expressions()
    first = next(iter(tensors.values()))
    channels = first.shape[-1]
    values = []

    def value(name, argument, number):
        tensor = tensors.get("weight" if argument == "w" else argument)
        if name == "lane":
            return tensor[int(number)]
        if name == "param":
            return tensor[:, int(number)]
        numbers = {"constant": number, "eps": eps, "inverse of channels": 1 / channels}
        return torch.tensor(numbers[name], dtype=first.dtype, device=first.device)

    functions = {
        "add": lambda a, b: a + b,
        "sub": lambda a, b: a - b,
        "mul": lambda a, b: a * b,
        "damp": lambda a, b: a * b,
        "div": lambda a, b: a / b,
        "hypot": lambda a, b: (a * a + b * b) ** 0.5,
        "max": torch.maximum,
        "greater": lambda a, b: (a > b).to(a.dtype),
        "neg": lambda a: -a,
        "sqrt": lambda a: a**0.5,
        "sigmoid": torch.sigmoid,
        "gate": gate,
        "same": lambda a: a,
        "sum": lambda a: a.sum(-1, keepdim=True),
    }
    for name, operands, argument, number in expressions:
        if operands:
            values.append(functions[name](*(values[at] for at in operands)))
        else:
            values.append(value(name, argument, number))
    zero = torch.zeros_like(first[0])
    return torch.stack([values[at] + zero for at in output])
