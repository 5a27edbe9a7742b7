"""Names of other libraries, with arguments that these libraries would refuse too."""

import torch
from misuse import refused, right

from flashcliff import UnsupportedError, nn
from flashcliff import functional as F
from flashcliff.compat import cgenn, flash_clifford, gatr, lgatr

REORDERED = cgenn.CliffordAlgebra((-1.0, 1.0, 1.0))
ALGEBRA = cgenn.CliffordAlgebra((1.0, 1.0, 1.0))
BLADES = torch.arange(3)


def mv(blades=8):
    return torch.randn(2, 4, blades)


def load(**changes):
    layer = cgenn.MVLinear(cgenn.CliffordAlgebra((1.0, 1.0, 1.0)), 2, 3)
    return lambda: layer.load_state_dict(layer.state_dict() | changes)


def lorentz(blocks=1, *, attention=(), **options):
    return lambda: lgatr.LGATr(blocks, 1, 1, 4, 2, 1, 4, {"num_heads": 2, **dict(attention)}, {}, **options)


def slim(**options):
    sizes = {"num_blocks": 1, "num_heads": 2, "in_v_channels": 1, "out_v_channels": 1, "hidden_v_channels": 4}
    return lambda: lgatr.LGATrSlim(**{**sizes, "in_s_channels": 2, "out_s_channels": 1, "hidden_s_channels": 4, **options})


ROWS = [
    # The algebra
    refused("a metric of other numbers", lambda: cgenn.CliffordAlgebra((2.0,)), ValueError, r"metric: expected 1, -1 or 0 for each vector, got \(2.0,\)"),
    refused("a metric of NaN", lambda: cgenn.CliffordAlgebra((1.0, float("nan"))), ValueError, r"metric: expected 1, -1 or 0 for each vector, got \(1.0, nan\)"),
    refused("a metric of strings", lambda: cgenn.CliffordAlgebra(("1", "1")), TypeError, "metric: expected a number, got '1'"),
    refused("a metric of booleans", lambda: cgenn.CliffordAlgebra((True, True)), TypeError, "metric: expected a number, got True"),
    refused("a string as a metric", lambda: cgenn.CliffordAlgebra("111"), TypeError, "metric: expected the squares"),
    refused("a number as a metric", lambda: cgenn.CliffordAlgebra(3), TypeError, "metric: expected the squares"),
    refused("a metric of nine vectors", lambda: cgenn.CliffordAlgebra((1.0,) * 9), UnsupportedError, r"p \+ q \+ r <= 8"),
    refused("a product of too few blades", lambda: ALGEBRA.geometric_product(mv(7), mv()), ValueError, r"a: expected \[..., 8\], got \[2, 4, 7\]"),
    refused("a product of batches that do not fit", lambda: ALGEBRA.geometric_product(mv(), torch.ones(3, 8)), RuntimeError, "[Ss]hape mismatch|broadcast"),
    refused("a product of two sets of blades", lambda: ALGEBRA.geometric_product(mv(), mv(), (BLADES, BLADES)), TypeError, "blades: expected a tuple of those of a, of the result, of b"),
    refused("a form of blades that the operand has not", lambda: ALGEBRA.q(mv(), blades=BLADES), ValueError, r"mv: expected \[..., 3\]"),
    refused("a form of a mask of blades", lambda: ALGEBRA.q(mv(3), blades=torch.tensor([True] * 3)), TypeError, "blades: expected indices of blades"),
    refused("a form of one set of blades for two", lambda: ALGEBRA.b(mv(3), mv(3), blades=BLADES), TypeError, "blades: expected a tuple of those of x, of y"),
    refused("a reverse of too many blades", lambda: ALGEBRA.beta(mv(9)), ValueError, r"mv: expected \[..., 8\]"),
    refused("norms of a part of the blades", lambda: ALGEBRA.norms(mv(3)), ValueError, r"mv: expected \[..., 8\]"),
    refused("norms of a grade too large", lambda: ALGEBRA.norms(mv(), grades=[4]), ValueError, "grade: expected 0 to 3, got 4"),
    refused("a grade as a string", lambda: ALGEBRA.get_grade(mv(), "1"), TypeError, "grade: expected an integer, got '1'"),
    refused("a grade below zero of an algebra", lambda: ALGEBRA.embed_grade(torch.ones(2, 3), -1), ValueError, "grade: expected 0 to 3, got -1"),
    refused("a grade with too few blades", lambda: ALGEBRA.embed_grade(torch.ones(2, 2), 1), ValueError, r"tensor: expected \[..., 3\], got \[2, 2\]"),
    refused("blades that are fewer than their indices", lambda: ALGEBRA.embed(torch.ones(2, 2), (1, 2, 3)), ValueError, r"tensor: expected \[..., blades\] for the blades \(1, 2, 3\) of 8, got \[2, 2\]"),
    refused("a blade that the algebra has not", lambda: ALGEBRA.embed(torch.ones(2, 1), (8,)), ValueError, r"for the blades \(8,\) of 8"),
    refused("the parity of a sum", lambda: ALGEBRA.parity(torch.ones(8)), ValueError, "parity: expected multivectors that are all odd or all even"),
    refused("the product of nothing", lambda: ALGEBRA.reduce_geometric_product([]), ValueError, "inputs: expected at least one multivector"),
    refused("tables of another metric", load(**{"algebra.metric": torch.tensor([1.0, 1.0, -1.0])}), RuntimeError, r"algebra.metric: expected that of CliffordAlgebra\(\(1.0, 1.0, 1.0\)\)"),
    refused("tables of another size", load(**{"algebra.cayley": torch.zeros(4, 4, 4)}), RuntimeError, "size mismatch for algebra.cayley"),
    refused("a product of nested multivectors", lambda: ALGEBRA.geometric_product(torch.nested.nested_tensor([mv()]), mv()), UnsupportedError, "a: expected a dense tensor, got nested; pad it"),
    refused("a product in another order of too few blades", lambda: REORDERED.geometric_product(mv(7), mv()), ValueError, r"a: expected \[..., 8\], got \[2, 4, 7\]"),
    refused("an operator in another order", lambda: F.reverse(torch.ones(8, 2, 4), REORDERED), ValueError, "algebra: expected vectors in the order null, positive, negative"),
    refused("a module in another order", lambda: nn.MVLinear(REORDERED, 2, 3), ValueError, "algebra: expected vectors in the order null, positive, negative"),
    refused("a product of arrays", lambda: ALGEBRA.geometric_product(mv().numpy(), mv()), TypeError, "a: expected a torch.Tensor, got ndarray; call `torch.from_dlpack\\(a\\)`"),
    # Layers and state dicts
    refused("a layer with a number as subspaces", lambda: cgenn.MVLinear(ALGEBRA, 2, 3, 1), TypeError, "subspaces: expected True or False, got 1"),
    refused("a layer with a string as exclude_dual", lambda: cgenn.MVSiLU(ALGEBRA, 2, "mag2", "no"), TypeError, "exclude_dual: expected True or False"),
    refused("a layer of a metric", lambda: cgenn.MVLinear([1.0, 1.0, 1.0], 2, 3), TypeError, "algebra: expected"),
    refused("a layer in the other layout", lambda: cgenn.MVLayerNorm(ALGEBRA, 4)(torch.ones(8, 2, 4)), ValueError, "must be"),
    refused("a layer in the other layout and order", lambda: cgenn.MVLayerNorm(REORDERED, 4)(torch.ones(8, 2, 4)), ValueError, r"x: expected \[..., 8\], got"),
    refused("a conversion of too many blades", lambda: cgenn.from_cgenn(mv(9), REORDERED), ValueError, r"x: expected \[..., 8\], got"),
    refused("a conversion back of too many blades", lambda: cgenn.to_cgenn(torch.ones(9, 2, 4), REORDERED), ValueError, r"x: expected \[..., 8\], got"),
    refused("a layer of two axes", lambda: cgenn.MVLayerNorm(ALGEBRA, 4)(torch.ones(4, 8)), ValueError, r"x: expected \[batch, channels, ..., blades\]"),
    refused("weights of another metric", lambda: cgenn.load_state_dict(nn.MVLinear((3, 0, 0), 2, 3), {"algebra.metric": torch.tensor([1.0])}), ValueError, "algebra.metric: expected the metric"),
    refused("weights that are missing", lambda: cgenn.load_state_dict(nn.MVLinear((3, 0, 0), 2, 3), {}), RuntimeError, "Missing key"),
    refused("weights in a list", lambda: cgenn.load_state_dict(nn.MVLinear((3, 0, 0), 2, 3), [1]), TypeError, "state_dict: expected a mapping, got list"),
    refused("a metric that is no tensor", lambda: cgenn.load_state_dict(nn.MVLinear((3, 0, 0), 2, 3), {"algebra.metric": "111"}), ValueError, "algebra.metric: expected the metric"),
    refused("a layer that CGENN has not", lambda: cgenn.state_dict(nn.SGPNorm((3, 0, 0), 4)), ValueError, "CGENN has no counterpart of SGPNorm"),
    # flash-clifford
    refused("a layer of four dimensions", lambda: flash_clifford.Layer(4, 4), ValueError, "dims: expected 2 or 3, got 4"),
    refused("a layer of a string of dimensions", lambda: flash_clifford.Layer(4, "3"), TypeError, "dims: expected an integer, got '3'"),
    refused("a layer with a number as use_fc", lambda: flash_clifford.Layer(4, 3, use_fc=1), TypeError, "use_fc: expected True or False"),
    refused("a function with a string as normalize", lambda: flash_clifford.fused_gelu_sgp_norm_3d(torch.ones(8, 2, 4), torch.ones(8, 2, 4), torch.ones(4, 20), "yes"), TypeError, "normalize: expected True or False"),
    refused("a function of the other dimension", lambda: flash_clifford.fused_gelu_sgp_norm_2d(torch.ones(8, 2, 4), torch.ones(8, 2, 4), torch.ones(4, 10)), ValueError, r"`x` must be \[4"),
    # L-GATr and GATr
    refused("an L-GATr of a string of blocks", lorentz("2"), TypeError, "blocks: expected an integer, got '2'"),
    refused("an L-GATr with a string as compile", lorentz(compile="no"), TypeError, "compile: expected True or False, got 'no'"),
    refused("an L-GATr with a number as naive_amp", lorentz(naive_amp=0), TypeError, "naive_amp: expected True or False, got 0"),
    refused("an L-GATr with a string as subgroup", lorentz(primitives={"subgroup": "no"}), TypeError, "subgroup: expected True or False, got 'no'"),
    refused("an L-GATr with a number as geometric_product", lorentz(primitives={"geometric_product": 0}), TypeError, "geometric_product: expected True or False, got 0"),
    refused("an L-GATr with a string as head_scale", lorentz(attention={"head_scale": "no"}), TypeError, "head_scale: expected True or False"),
    refused("an L-GATr of a channel that is not in a list", lorentz(reinsert_mv_channels=0), TypeError, "reinsert_mv_channels: expected integers as an iterable, got 0"),
    refused("a slim network of half a block", slim(num_blocks=1.5), TypeError, "num_blocks: expected an integer, got 1.5"),
    refused("a slim network of a string of heads", slim(num_heads="2"), TypeError, "num_heads: expected an integer, got '2'"),
    refused("a slim network of no heads", slim(num_heads=0), ValueError, "num_heads: expected at least 1, got 0"),
    refused("a slim network with a string as checkpoint_blocks", slim(checkpoint_blocks="no"), TypeError, "checkpoint_blocks: expected True or False"),
    refused("a slim network with a number as compile", slim(compile=0), TypeError, "compile: expected True or False, got 0"),
    refused("a slim network of half a ratio", slim(mlp_ratio=0.5), TypeError, "mlp_ratio: expected an integer, got 0.5"),
    refused("a GATr with a string as multi_query", lambda: gatr.GATr(1, 1, 4, 2, 1, 4, gatr.SelfAttentionConfig(multi_query="no"), gatr.MLPConfig()), TypeError, "multi_query: expected True or False, got 'no'"),
    right("an algebra as integers", lambda: cgenn.CliffordAlgebra([0, 1, 1, 1]).signature, lambda s: s == (3, 0, 1)),
    right("an algebra of a tensor", lambda: cgenn.CliffordAlgebra(torch.tensor([1.0, -1.0, -1.0, -1.0])).signature, lambda s: s == (1, 3, 0)),
    right("a metric in another order", lambda: cgenn.CliffordAlgebra((-1.0, 0, 1)), lambda a: (a.signature, a.metric.tolist()) == ((1, 1, 1), [-1, 0, 1])),
    right("a metric of a negative zero", lambda: cgenn.CliffordAlgebra((1.0, -0.0)).blades, lambda b: b == ("1", "e1", "e0", "e10")),
    right("half precision by the table", lambda: ALGEBRA.geometric_product(mv().half(), mv().half()), lambda o: o.dtype == torch.float16),
]  # fmt: skip
