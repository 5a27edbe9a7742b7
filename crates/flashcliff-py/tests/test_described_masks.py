"""Gradients by masks of attention, such as learned biases of pairs: layers as one function, beside their calls."""

import copy

import pytest
import torch
from described_common import results, same
from nn_common import disturb, random

from flashcliff.compat import gatr, lgatr
from flashcliff.nn import transformer as gt

GATR, LGATR = (3, 0, 1), (1, 3, 0)


def network(signature, **options):
    torch.manual_seed(0)
    settings = {"blocks": 2, "attention": {"heads": 2}, "scalar_activation": "gelu", **options}
    return disturb(gt.GATransformer(signature, 2, 3, 4, 3, 3, 8, **settings).double())


def inputs(net, *batch):
    x = random(net.geometry.algebra.blade_count, *batch, 2).requires_grad_()
    return x, random(*batch, 3, seed=1).requires_grad_()


def bias(*shape, hidden=True):
    """Numbers with a gradient, of which some hide a key."""
    made = random(*shape, seed=7)
    if hidden:
        made.view(-1)[::4] = -torch.inf
    return made.requires_grad_()


def on(device, *tensors):
    return [t.detach().to(device).requires_grad_() for t in tensors]


SHAPES = [(5, 5), (1, 5), (2, 5, 5), (2, 1, 5), (3, 1, 5, 5), (3, 1, 1, 5), (3, 2, 1, 5), (3, 2, 5, 5), (1, 2, 5, 5)]


@pytest.mark.parametrize("multi_query", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_masks_of_any_shape(signature, shape, multi_query, functions, device):
    net = network(signature, attention={"heads": 2, "multi_query": multi_query})
    x, s, mask = on(device, *inputs(net, 3, 5), bias(*shape))
    same(net.to(device), x, s, mask=mask, limit={"cpu": 1e-12, "cuda": 1e-11}[device])
    assert functions == [("GATransformer", 4)]


@pytest.mark.cuda
@pytest.mark.parametrize("shape", [(2, 40, 40), (70, 1, 40, 40), (70, 2, 40, 40), (1, 40)], ids=str)
def test_bits_are_those_of_every_run(shape, functions):
    net = network(GATR).float().cuda()
    given = on("cuda", *inputs(net, 70, 40), bias(*shape))
    x, s, mask = (t.detach().float().requires_grad_() for t in given)
    first = results(net, x, s, mask=mask)
    for _ in range(5):
        for a, b in zip(results(net, x, s, mask=mask), first, strict=True):
            assert torch.equal(a, b)
    assert len(functions) == 6


@pytest.mark.parametrize("shape", [(3, 2, 1, 4, 4), (3, 1, 2, 4, 4), (2, 1, 4, 4), (4, 4)], ids=str)
def test_batches_of_several_axes(shape, functions):
    net = network(LGATR)
    same(net, *inputs(net, 3, 2, 4), mask=bias(*shape))
    assert functions == [("GATransformer", 4)]


def test_only_the_mask_has_a_gradient(functions):
    net = network(GATR).requires_grad_(False)
    x, s = (t.detach() for t in inputs(net, 3, 5))
    same(net, x, s, mask=bias(3, 2, 5, 5))
    assert functions == [("GATransformer", 4)]


def test_masks_of_another_type_and_order(functions):
    net = network(LGATR)
    x, s = inputs(net, 3, 5)
    single = bias(3, 2, 5, 5).detach().float().requires_grad_()
    # The gradient of a mask has its type: layers add up the gradients of their blocks in it.
    same(net, x, s, mask=single, limit=2**-22)
    same(net, x, s, mask=bias(5, 5, 3, 2).permute(2, 3, 1, 0))
    assert functions == [("GATransformer", 4)] * 2


def test_biases_that_layers_make_of_pairs(functions):
    """Biases of pairs are a linear map of features of pairs, whose weights learn."""
    net = network(GATR)
    x, s = inputs(net, 3, 5)
    pairs, weights = random(3, 5, 5, 6, seed=8), random(6, 2, seed=9).requires_grad_()

    class Biased(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.weights = net, torch.nn.Parameter(weights)

        def forward(self, x, s):
            return self.net(x, s, mask=(pairs @ self.weights).movedim(-1, 1))

    same(Biased(), x, s)
    assert functions == [("GATransformer", 4)]


@pytest.mark.parametrize("shape", [(2, 5, 5), (3, 1, 1, 5)], ids=str)
def test_gradients_of_gradients(shape, functions):
    net = network(LGATR)
    same(net, *inputs(net, 3, 5), mask=bias(*shape, hidden=False), second=True, limit=1e-9)
    assert functions[:1] == [("GATransformer", 4)]


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("signature", [GATR, LGATR], ids=str)
def test_masks_of_both_attentions_of_a_block(signature, joint, functions):
    torch.manual_seed(0)
    cross = {"heads": 2, "joint": joint}
    block = gt.ConditionalBlock(
        signature, 4, 8, 2, 3, attention={"heads": 2}, cross_attention=cross, scalar_activation="gelu"
    )
    block = disturb(block.double())
    x, y = random(16, 2, 5, 4).requires_grad_(), random(16, 2, 7, 2, seed=1).requires_grad_()
    s, t = random(2, 5, 8, seed=2).requires_grad_(), random(2, 7, 3, seed=3).requires_grad_()
    more = {"reference": random(1, 1, seed=4)} if signature == GATR else {}
    for own, crossing in [(bias(2, 1, 5, 5), bias(2, 5, 7)), (None, bias(1, 7)), (bias(5, 5), None)]:
        masks = {
            name: {} if mask is None else {"mask": mask}
            for name, mask in [("options", own), ("cross_options", crossing)]
        }
        same(block, x, y, s, t, **more, **masks)
    assert functions == [("ConditionalBlock", 1)] * 3


def test_layers_of_attention(functions):
    torch.manual_seed(0)
    layer = disturb(gt.SelfAttention(LGATR, 4, 8, heads=2).double())
    x, s = random(16, 3, 5, 4).requires_grad_(), random(3, 5, 8, seed=1).requires_grad_()
    same(layer, x, s, mask=bias(3, 2, 5, 5))
    layer = disturb(gt.CrossAttention(LGATR, 4, 8, 2, 3, heads=2).double())
    y, t = random(16, 3, 7, 2, seed=2).requires_grad_(), random(3, 7, 3, seed=3).requires_grad_()
    same(layer, x, y, s, t, mask=bias(3, 1, 5, 7))
    assert [name for name, _ in functions] == ["SelfAttention", "CrossAttention"]


def test_transforms_are_left_to_layers(functions):
    net = network(LGATR)
    x, s = (t.detach() for t in inputs(net, 3, 5))

    def total(mask):
        return net(x, s, mask=mask)[0].square().sum()

    mask = bias(2, 5, 5)
    got = torch.func.grad(total)(mask.detach())
    assert not functions
    want = torch.autograd.grad(total(mask), mask)[0]
    assert functions == [("GATransformer", 4)]
    assert (got - want).abs().max() < 1e-12 * want.abs().max()


def test_networks_of_other_packages(functions):
    net = disturb(gatr.GATr(2, 3, 4, in_s_channels=3, out_s_channels=2, hidden_s_channels=8, num_blocks=2,
                            attention={"num_heads": 2}, mlp={}).double())  # fmt: skip
    mv, s = random(3, 5, 2, 16).requires_grad_(), random(3, 5, 3, seed=1).requires_grad_()
    same(net, mv, s, attention_mask=bias(3, 2, 5, 5))
    slim = lgatr.LGATrSlim(
        in_v_channels=2, out_v_channels=3, hidden_v_channels=8, in_s_channels=5, out_s_channels=4,
        hidden_s_channels=12, num_blocks=2, num_heads=2,
    )  # fmt: skip
    slim = disturb(slim.double()).eval()
    v, s = random(3, 5, 2, 4).requires_grad_(), random(3, 5, 5, seed=1).requires_grad_()
    same(slim, v, s, attn_mask=bias(3, 2, 5, 5))
    assert len(functions) == 2


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_masks_of_16_bits(dtype, functions):
    """They are computed with in float32, and their gradients rounded once."""
    net = network(LGATR).to(dtype)
    x, s, mask = (t.detach().to(dtype).requires_grad_() for t in (*inputs(net, 3, 5), bias(2, 5, 5)))
    out = net(x, s, mask=mask)
    seeds = [torch.randn_like(t) for t in out]
    got = torch.autograd.grad(out, mask, seeds)[0]
    wide = copy.deepcopy(net).float()
    of_mask = mask.detach().float().requires_grad_()
    out = wide(x.detach().float(), s.detach().float(), mask=of_mask)
    want = torch.autograd.grad(out, of_mask, [t.float() for t in seeds])[0]
    assert got.dtype == dtype and torch.equal(got, want.to(dtype))
    assert functions == [("GATransformer", 4)] * 2


def test_gradients_of_gradients_by_masks_under_autocast(functions):
    net = network(LGATR).float()
    x, s, mask = (t.detach().float().requires_grad_() for t in (*inputs(net, 3, 5), bias(2, 5, 5, hidden=False)))
    want = results(net, x, s, mask=mask, second=True)

    class Autocast(torch.nn.Module):
        def forward(self, x, s, mask):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                return net(x, s, mask=mask)

        def parameters(self):
            return net.parameters()

    got = results(Autocast(), x, s, mask=mask, second=True)
    assert all(torch.equal(g, w) for g, w in zip(got, want, strict=True))


@pytest.mark.parametrize(
    ("mask", "error", "says"),
    [
        (torch.ones(5, 4, dtype=torch.bool), ValueError, r"mask: .*\[3, 2, 5, 5\], got \[5, 4\]"),
        (torch.ones(2, 1, 5, 5), ValueError, r"mask: .* got \[2, 1, 5, 5\]"),
        (torch.ones(1, 3, 1, 5, 5), ValueError, r"mask: .* got \[1, 3, 1, 5, 5\]"),
        (torch.ones(5, 5, dtype=torch.int64), TypeError, "mask: .* got torch.int64"),
        ("causal", TypeError, "mask: .* got str"),
    ],
)
def test_masks_of_other_shapes_and_types_are_errors(mask, error, says):
    net = network(LGATR)
    x, s = inputs(net, 3, 5)
    with pytest.raises(error, match=says):
        net(x, s, mask=mask)
