"""Groups of products with block-sparse matrices: tables, without a GPU."""

from types import SimpleNamespace

import pytest
import torch

import flashcliff
from flashcliff._ops import block_sparse
from flashcliff._ops.equivariant import Sizes
from flashcliff.nn.transformer import products
from flashcliff.nn.transformer.geometry import geometry_of

SIZES = SimpleNamespace(UNIT=8, GROUP_UNITS=8, GROUP_INPUTS=8, GROUP_NUMBERS=5)


def listed(groups):
    """The inputs and the outputs of each group, and whether it leads."""
    units = groups.units.tolist()
    return [
        (units[a : a + n], units[b : b + m], bool(leads)) for a, n, b, m, leads in groups.sizes.tolist()
    ]


@pytest.fixture
def blocks_of(monkeypatch):
    monkeypatch.setattr(block_sparse._core, "BlockSparse", SIZES, raising=False)
    monkeypatch.setattr(block_sparse._core, "CUDA", True)
    return lambda units: block_sparse.blocks_of(
        units.repeat_interleave(8, 0).repeat_interleave(8, 1), torch.device("cpu")
    )


@pytest.mark.parametrize("shape", [(1, 1), (9, 4), (20, 45), (3, 18)], ids=str)
@pytest.mark.parametrize("share", [0.1, 0.6, 1.0])
def test_groups_have_each_block_once(blocks_of, shape, share):
    units = torch.rand(shape, generator=torch.Generator().manual_seed(0)) < share
    units[:, 0] = True
    blocks = blocks_of(units)
    for groups, wanted in [(blocks.forward, units), (blocks.backward, units.t()), (blocks.weights, units)]:
        assert torch.equal(groups.groups, groups.sizes)
        found = torch.zeros(wanted.shape, dtype=torch.int32)
        for inputs, outputs, _ in listed(groups):
            assert 0 < len(outputs) <= SIZES.GROUP_UNITS
            for unit in inputs:
                found[unit, outputs] += 1
        assert torch.equal(found, wanted.int())
        assert groups.entries == 64 * int(wanted.sum())
        # Outputs have one group that leads, so each element of a bias has one gradient.
        leading = [unit for _, outputs, leads in listed(groups) if leads for unit in outputs]
        assert sorted(leading) == list(range(wanted.shape[1]))
    assert all(len(inputs) <= SIZES.GROUP_INPUTS for inputs, _, _ in listed(blocks.weights))


@pytest.fixture
def mode(blocks_of, monkeypatch):
    """A function of sizes and rows."""
    monkeypatch.setattr(products, "_in_tf32", lambda x: True)
    cached = products._are_whole_units, products._have_zeros

    def of(sizes, rows):
        layer = products.Layer(geometry_of(flashcliff.Algebra(3, 0, 1)), Sizes(*sizes), (0,), True)
        return tuple(products.mode_of([layer], SimpleNamespace(), torch.zeros(1), rows))

    yield of
    for function in cached:
        function.cache_clear()


def test_modes_follow_rows_and_sizes(mode):
    for rows in (1, 512, 513, 9000):
        assert mode((16, 32, 128, 256), rows) == (True, True)
    # Few blades beside many scalars: most of the matrix is not zero.
    assert mode((2, 2, 512, 512), 512) == (True, True)
    assert mode((2, 2, 512, 512), 513) == (False, True)


def test_pieces_are_even_and_nearly_equal():
    assert [len(piece) for piece in block_sparse._pieces(list(range(18)), 8)] == [6, 6, 6]
    assert [len(piece) for piece in block_sparse._pieces(list(range(44)), 8)] == [6, 8, 8, 6, 8, 8]
    assert [len(piece) for piece in block_sparse._pieces(list(range(9)), 8)] == [4, 5]
    assert block_sparse._pieces([3], 8) == [[3]] and block_sparse._pieces([], 8) == []
