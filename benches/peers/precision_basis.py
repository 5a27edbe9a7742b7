"""Tokens of few bits for `transformers_precision.py`: what one layer hands to the next is rounded to a type, in a basis.

| basis | vectors                                                                                              |
|-------|------------------------------------------------------------------------------------------------------|
| lab   | the vectors of the algebra                                                                           |
| null  | `(e_t + e_z) / sqrt(2)` and `(e_t - e_z) / sqrt(2)` instead of the first and the last vector, whose squares
|       | differ in sign. The beam is z. The small component of a momentum along the beam is stored, not left to a difference. |

Arithmetic stays float32. Matrix products must have all bits of float32: TF32 would round factors once more, in the lab basis, where
kernels of the null basis would multiply what is stored.
"""

import itertools
import math

import torch
from flashcliff.nn import transformer as gt

TOKENS = (gt.EquiLinear, gt.EquiLayerNorm, gt.GeometricAttention, gt.ScalarGate)
"""The layers whose results are tokens. Sums and products of tokens are no layers."""
# These have the exponents of float32.
UNSCALED = torch.float32, torch.bfloat16


def null_rows(algebra):
    """The change to the null basis but for the lengths of its rows: a matrix of integers for all blades.

    Its entries are the minors of the matrix for vectors. Its rows are orthogonal, so `null_basis` has its transpose as inverse.
    """
    positive, negative, null = algebra.signature
    if null or not positive or not negative:
        raise ValueError(
            f"algebra: expected vectors of both signs and none that is null, got {algebra!r}; use the lab basis"
        )
    vectors = torch.eye(algebra.dim, dtype=torch.int64)
    vectors[0, -1], vectors[-1, 0], vectors[-1, -1] = 1, 1, -1
    blades = [[int(number) - 1 for number in name[1:]] for name in algebra.blades]
    return torch.tensor([[_minor(vectors, i, j) for j in blades] for i in blades])


def _minor(matrix, rows, columns):
    """A minor of integers; 0 unless there are as many rows as columns."""
    if len(rows) != len(columns):
        return 0
    total = 0
    for order in itertools.permutations(range(len(rows))):
        inversions = sum(a > b for a, b in itertools.combinations(order, 2))
        entries = (int(matrix[row, columns[at]]) for row, at in zip(rows, order))
        total += (-1) ** inversions * math.prod(entries)
    return total


def null_basis(algebra):
    """The orthogonal matrix from components in the lab basis to components in the null basis, float64."""
    rows = null_rows(algebra)
    squares = rows @ rows.t()
    lengths = squares.diagonal()
    if not torch.equal(squares, torch.diag(lengths)):
        raise AssertionError("rows of the change of basis are not orthogonal")
    return rows.double() / lengths.double().sqrt()[:, None]


class Storage:
    """Rounds tokens to a type and back, and their gradients likewise.

    Types of few exponents have a scale, a power of two, for each grade of an item, and for its scalars. A kernel that writes an item
    knows its largest component without another pass, and a scale for a whole tensor would make the soft particles of a jet zeros.
    """

    def __init__(self, algebra, dtype, null=False):
        self.dtype, self.scaled = dtype, dtype not in UNSCALED
        self.grades = [algebra.grades.count(grade) for grade in range(algebra.grade_count)]
        self.basis = null_basis(algebra) if null else None
        self.moved = {}

    def tokens(self, pair):
        """Multivectors `[blades, ..., channels]` and scalars `[..., channels]` as they are read after they were stored."""
        mv, s = pair
        return _Stored.apply(mv, self.multivectors), None if s is None else _Stored.apply(s, self.scalars)

    def multivectors(self, x):
        """Rounded multivectors, without a graph of gradients."""
        if self.basis is None:
            return self._rounded(x, self.grades)
        basis = self._basis(x)
        stored = self._rounded((basis @ x.reshape(len(x), -1)).view(x.shape), self.grades)
        return (basis.t() @ stored.reshape(len(x), -1)).view(x.shape)

    def scalars(self, x):
        """Rounded scalars, without a graph of gradients."""
        return self._rounded(x.unsqueeze(0), [1]).squeeze(0)

    def _basis(self, x):
        if x.is_cuda and torch.get_float32_matmul_precision() != "highest":
            raise RuntimeError(
                "the null basis: expected matrix products of float32, got products that may round to TF32; call "
                'torch.set_float32_matmul_precision("highest") before'
            )
        key = x.device, x.dtype
        if key not in self.moved:
            self.moved[key] = self.basis.to(x)
        return self.moved[key]

    def _rounded(self, x, grades):
        """What a type keeps of components, which are of so many blades of each grade."""
        if not self.scaled:
            return x.to(self.dtype).to(x.dtype)
        blades = x.abs().amax(-1, keepdim=True).split(grades)
        scales = _scale(torch.cat([one.amax(0, keepdim=True) for one in blades]), self.dtype)
        scales = torch.cat([one.expand_as(same) for one, same in zip(scales.split(1), blades)])
        return (x * scales).to(self.dtype).to(x.dtype) / scales


def _scale(largest, dtype):
    """The power of two that brings the largest component below the largest number of a type."""
    exponent = torch.frexp(largest / torch.finfo(dtype).max)[1].clamp(-100, 100)
    # The bits of 2 to the power of -exponent, which no function of CUDA rounds.
    return ((127 - exponent) << 23).to(torch.int32).view(torch.float32).to(largest.dtype)


class _Stored(torch.autograd.Function):
    """Rounding whose gradient is the gradient of its result, rounded alike: the basis is orthogonal."""

    @staticmethod
    def forward(ctx, x, rounded):
        # A token that nothing reads has no gradient, and neither have the parameters that only it depends on.
        ctx.set_materialize_grads(False)
        ctx.rounded = rounded
        return rounded(x)

    @staticmethod
    def backward(ctx, gradient):
        return None if gradient is None else ctx.rounded(gradient), None


def store_tokens(net, storage, sums=True):
    """Makes a network hand rounded tokens from layer to layer, one layer at a time. Inputs and results stay as they are.

    Args:
        net: a `GATransformer`.
        storage: how tokens are stored.
        sums: whether the sums of tokens, which pass the whole network, are rounded, too.
    """

    class Calls(gt.Block.calls_of_layers):
        def sum(self, x, y):
            found = super().sum(x, y)
            return storage.tokens(found) if sums else found

        def products(self, geometry, x):
            return storage.tokens(super().products(geometry, x))

    for module in net.modules():
        if isinstance(module, gt.Block | gt.GeometricBilinear):
            module.calls_of_layers = Calls
        starts = module is net.linear_in and not sums
        if isinstance(module, TOKENS) and module is not net.linear_out and not starts:
            module.register_forward_hook(lambda _module, _given, found: storage.tokens(found))
