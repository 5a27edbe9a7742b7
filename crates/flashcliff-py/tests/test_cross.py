"""Blocks that attend to another set: what their layers give, and pooling of a set into few tokens and back."""

import pytest
import torch
from described_common import same
from nn_common import algebra_and_table, alike, disturb, random
from nn_reference import versor_action

from flashcliff.nn import transformer as gt

GATR, LGATR = (3, 0, 1), (1, 3, 0)


def block(signature, channels=4, scalars=8, others=(2, 3), **options):
    torch.manual_seed(0)
    settings = {"attention": {"heads": 2}, **options}
    return disturb(gt.CrossBlock(signature, channels, scalars, *others, **settings).double())


def sets(*batch, scalars=8, others=3):
    """Tokens, items, and the scalars of both."""
    return [
        random(16, *batch, 4, 4).requires_grad_(),
        random(16, *batch, 7, 2, seed=1).requires_grad_(),
        random(*batch, 4, scalars, seed=2).requires_grad_() if scalars else None,
        random(*batch, 7, others, seed=3).requires_grad_() if others else None,
    ]


@pytest.mark.parametrize("options", [{}, {"affine": True}, {"mlp_layers": 3}], ids=str)
@pytest.mark.parametrize("signature", [GATR, LGATR])
def test_blocks_are_their_layers(signature, options, functions):
    own, given = block(signature, **options), sets(3)
    reference = random(3, 1, 1, seed=4).requires_grad_() if signature == GATR else None
    same(own, *given, reference)
    same(own, *given, reference, mask=random(4, 7) > -0.5)
    assert functions == [("CrossBlock", 1)] * 2


def test_ragged_sets(functions):
    own, given = block(LGATR), sets()
    bounds = torch.tensor([0, 1, 4]), torch.tensor([0, 5, 7])
    options = dict(zip(("cu_seqlens", "cu_seqlens_key"), bounds))
    same(own, *given, None, **options)
    whole = own(*given, None, **options)
    tokens, items, s, items_s = given
    part = own(tokens[:, 1:], items[:, 5:], s[1:], items_s[5:])
    alike([whole[0][:, 1:], whole[1][1:]], part, 1e-12)
    assert functions == [("CrossBlock", 1)] * 3


class Pooled(torch.nn.Module):
    """Learned tokens attend to all items, a transformer works on tokens, and items attend to what it made of them."""

    def __init__(self, signature):
        super().__init__()
        self.tokens = torch.nn.Parameter(torch.randn(3, 8))
        self.pool = block(signature)
        self.inner = gt.GATransformer(signature, 4, 4, 4, 8, 8, 8, blocks=1, attention={"heads": 2})
        self.back = block(signature, 2, 3, (4, 8))

    def forward(self, mv, s):
        batch = mv.shape[1:-2]
        reference = gt.join_reference(mv)
        tokens = mv.new_zeros(16, *batch, 3, 4), self.tokens.expand(*batch, 3, 8)
        few = self.pool(tokens[0], mv, tokens[1], s, reference)
        few = self.inner(*few, reference=reference)
        return self.back(mv, few[0], s, few[1], reference)


@pytest.mark.parametrize("signature", [GATR, LGATR])
def test_pooling_commutes_with_the_group(signature, functions):
    torch.manual_seed(0)
    net, (_, table) = disturb(Pooled(signature).double()), algebra_and_table(signature)
    _, x, _, s = sets(2)
    action = versor_action(table, 2, seed=3)
    out, out_s = net(x, s)
    assert functions == [("CrossBlock", 1), ("GATransformer", 3), ("CrossBlock", 1)]
    moved = torch.tensordot(action, x, 1)
    alike(net(moved, s), (torch.tensordot(action, out, 1), out_s), 1e-9)
    # Items have no order.
    order = torch.randperm(7)
    alike(net(x[:, :, order], s[:, order]), (out[:, :, order], out_s[:, order]), 1e-10)
    out_s.sum().backward()
    assert net.tokens.grad.abs().max() > 0
