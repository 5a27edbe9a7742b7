"""Products with block-sparse matrices on CUDA, beside float64."""

import pytest
import torch

from flashcliff._ops import block_sparse

pytestmark = pytest.mark.cuda
# TF32 has 11 bits.
LIMIT = 1e-3
# Rows; inputs and outputs in units of 8; the blocks that are filled, of a hundred.
SHAPES = [
    (1, 1, 1, 100),
    (5, 3, 2, 50),
    (64, 50, 5, 100),
    (130, 40, 17, 10),
    (700, 12, 70, 30),
    (768, 7, 11, 40),
    (769, 7, 11, 40),
    (1025, 19, 9, 50),
    (2049, 7, 11, 40),
    (3000, 130, 9, 100),
    (2100, 20, 300, 40),
    (9001, 9, 20, 40),
    (40000, 6, 6, 50),
]


def case(shape):
    rows, inputs, outputs, filled = shape
    generator = torch.Generator("cuda").manual_seed(0)

    def drawn(*size):
        return torch.randn(size, generator=generator, device="cuda")

    units = torch.rand(inputs, outputs, generator=generator, device="cuda") * 100 < filled
    mask = units.repeat_interleave(8, 0).repeat_interleave(8, 1)
    blocks = block_sparse.blocks_of(mask.cpu(), torch.device("cuda"))
    matrix = drawn(8 * inputs, 8 * outputs) * mask
    return drawn(rows, 8 * inputs), matrix, drawn(8 * outputs), drawn(rows, 8 * outputs), mask, blocks


def close(got, want, limit=LIMIT):
    assert (got.double() - want).abs().max() <= limit * want.abs().max()


def gradients(x, gradient, blocks, bias=True):
    """Of the matrix and of the bias, on top of a number that blocks without entries keep."""
    to = torch.full((x.shape[1], gradient.shape[1]), 7.0, device="cuda")
    of_bias = torch.full((gradient.shape[1],), 7.0, device="cuda") if bias else None
    block_sparse.weights(x, gradient, blocks.weights, to, of_bias)
    return to, of_bias


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_products_and_gradients(shape):
    x, matrix, bias, gradient, mask, blocks = case(shape)
    wide, wide_matrix = x.double(), matrix.double()
    close(block_sparse.product(x, matrix, bias, blocks.forward), wide @ wide_matrix + bias)
    close(block_sparse.product(x, matrix, None, blocks.forward), wide @ wide_matrix)
    of_x = block_sparse.product(gradient, matrix, None, blocks.backward, True)
    close(of_x, gradient.double() @ wide_matrix.t())
    of_matrix, of_bias = gradients(x, gradient, blocks)
    assert (of_matrix[~mask] == 7).all()
    close(of_matrix * mask, wide.t() @ gradient.double() * mask)
    # Sums of biases are not rounded to TF32.
    close(of_bias, gradient.double().sum(0), 1e-5)
    assert all(map(torch.equal, gradients(x, gradient, blocks), (of_matrix, of_bias)))
    assert torch.equal(gradients(x, gradient, blocks, bias=False)[0], of_matrix)


@pytest.mark.parametrize("rows", [20, 3000])
def test_outputs_without_inputs_have_biases(rows):
    """Their group has no inputs."""
    mask = torch.ones(16, 24, dtype=torch.bool)
    mask[:, 8:16] = False
    blocks = block_sparse.blocks_of(mask, torch.device("cuda"))
    x, bias = torch.randn(rows, 16, device="cuda"), torch.randn(24, device="cuda")
    matrix = torch.randn(16, 24, device="cuda") * mask.cuda()
    got = block_sparse.product(x, matrix, bias, blocks.forward)
    assert torch.equal(got[:, 8:16], bias[8:16].expand(rows, 8))
    gradient = torch.randn(rows, 24, device="cuda")
    close(gradients(x, gradient, blocks)[1], gradient.double().sum(0), 1e-5)


def test_rows_with_strides():
    x, matrix, bias, _, _, blocks = case((50, 4, 5, 60))
    apart = torch.zeros(50, 44, device="cuda")
    apart[:, :32] = x
    assert block_sparse.serves(apart[:, :32], matrix)
    got = block_sparse.product(apart[:, :32], matrix, bias, blocks.forward)
    assert torch.equal(got, block_sparse.product(x, matrix, bias, blocks.forward))


def test_blocks_that_are_zero_are_not_read():
    x, matrix, bias, _, mask, blocks = case((50, 4, 5, 60))
    want = block_sparse.product(x, matrix, bias, blocks.forward)
    matrix[~mask] = torch.nan
    assert torch.equal(block_sparse.product(x, matrix, bias, blocks.forward), want)


def test_matrices_of_no_whole_units_and_places_have_no_kernels():
    assert block_sparse.blocks_of(torch.ones(8, 12, dtype=torch.bool), torch.device("cuda")) is None
    x = torch.zeros(4, 17, device="cuda")[:, 1:]
    assert not block_sparse.serves(x)
    assert not block_sparse.serves(torch.zeros(4, 16, device="cuda", dtype=torch.float64))
