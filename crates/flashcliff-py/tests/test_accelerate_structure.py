"""``flashcliff.accelerate`` recognises modules by their structure: here by classes of no package and of other names."""

import gatr_reference as reference
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import flashcliff
from flashcliff.compat import gatr, lgatr
from flashcliff.compat._accelerate.calls import called_as
from flashcliff.compat._accelerate.outside import empty_caches
from flashcliff.compat._accelerate.structure import number
from flashcliff.compat._accelerate.tables import widen


class Mix(nn.Module):
    """A linear map by GATr's nine maps, which it divides by their norms in float32, and keeps as no buffer."""

    def __init__(self, inputs, outputs, sign=1.0):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(outputs, inputs, 9) / inputs**0.5)
        self.bias = nn.Parameter(torch.randn(outputs, 1))
        maps = (reference.maps() != 0).float()
        self.table = maps / maps.square().sum((1, 2), keepdim=True).sqrt()
        self.table[3] *= sign

    def forward(self, mv, scalars=None):
        found = torch.einsum("oia,ayx,...ix->...oy", self.weight, self.table, mv)
        return found + F.pad(self.bias, (0, 15)), None


class Scale(nn.Module):
    """GATr's norm, or one by another sum."""

    def __init__(self, epsilon=0.02, blades=(0, 2, 3, 4, 8, 9, 10, 14)):
        super().__init__()
        self.epsilon, self.blades = epsilon, list(blades)

    def forward(self, a, b):
        square = a[..., self.blades].square().sum(-1).mean(-1)[..., None, None]
        return a / square.clamp(min=self.epsilon).sqrt(), F.layer_norm(b, b.shape[-1:])


class Switch(nn.Module):
    """A gate by the scalar."""

    def forward(self, a, b):
        return a * F.silu(a[..., :1]), F.silu(b)


class Loss(nn.Module):
    """Takes two tensors, and is neither a norm nor a gate."""

    def forward(self, a, b):
        return (a - b).square().mean()


class Own(nn.Module):
    """A model with layers of others, whose blocks are no blocks that anything is known of."""

    def __init__(self, **options):
        super().__init__()
        self.linear_in, self.linear_out = Mix(2, 4), Mix(4, 1, **options)
        self.blocks = nn.ModuleList([nn.ModuleDict({"a": Scale(), "b": Switch()})])
        self.loss = Loss()

    def forward(self, mv, s):
        mv, _ = self.linear_in(mv)
        for block in self.blocks:
            mv, s = block["b"](*block["a"](mv, s))
        return self.linear_out(mv)[0], s


def inputs():
    generator = torch.Generator().manual_seed(0)
    drawn = [torch.randn(*size, generator=generator) for size in ((3, 5, 2, 16), (3, 5, 4))]
    return [drawn[0].double(), drawn[1].double()]


def test_single_layers_are_replaced_within_a_model_of_ones_own():
    model = widen(Own())
    want = [x.detach() for x in model(*inputs())]
    found = flashcliff.accelerate(model)
    assert found.model is model
    kinds = {name: type(module) for name, module in model.named_modules() if name in found.replaced}
    assert kinds == {
        "linear_in": gatr.EquiLinear,
        "blocks.0.a": gatr.EquiLayerNorm,
        "blocks.0.b": lgatr.v1.ScalarGatedNonlinearity,
        "linear_out": gatr.EquiLinear,
    }
    assert list(found.kept) == [""] and "config" in found.kept[""], str(found)
    assert all(off < 1e-12 for off in found.differences.values())
    assert found.differences.keys() == found.replaced.keys()
    for got, wanted in zip(model(*inputs()), want, strict=True):
        # The original's tables are rounded to float32.
        assert (got - wanted).abs().max() < 1e-6 * wanted.abs().max()


def test_another_sign_of_one_map_is_found():
    model = Own(sign=-1.0)
    found = flashcliff.accelerate(model)
    assert "linear_out" not in found.replaced and isinstance(model.linear_out, Mix)
    assert "outputs differ" in found.kept["linear_out"]
    assert "linear_in" in found.replaced


@pytest.mark.parametrize("factor", [1 - 1e-5, 1 + 1e-4])
def test_a_map_with_another_factor_is_no_rounding(factor):
    layer = Mix(2, 3, sign=factor)
    found = flashcliff.accelerate(layer)
    assert found.model is layer and "differ" in found.kept[""]


def test_a_norm_by_another_sum_is_kept():
    model = nn.Sequential(Scale(), Scale(blades=range(16)))
    found = flashcliff.accelerate(model)
    assert list(found.replaced) == ["0"] and isinstance(model[1], Scale)
    assert model[0].eps == 0.02


def test_numbers_of_a_norm_count():
    """Large input hides epsilon, so small input is tried too."""

    class Wrong(Scale):
        def forward(self, a, b):
            self.blades, kept = [0, 2, 3, 4, 8, 9, 10, 14], self.epsilon
            self.epsilon = 0.03
            found = super().forward(a, b)
            self.epsilon = kept
            return found

    wrong = Wrong()
    assert flashcliff.accelerate(wrong).model is wrong


def test_a_call_by_other_names():
    """The mask of a copy has another name and place than ours."""

    class Copy(nn.Module):
        def forward(
            self,
            multivectors,
            additional_qk_features_mv=None,
            scalars=None,
            additional_qk_features_s=None,
            attention_mask=None,
        ):
            raise AssertionError

    sizes = dict(in_mv_channels=2, out_mv_channels=2, in_s_channels=4, out_s_channels=4)
    config = lgatr.v1.SelfAttentionConfig(num_heads=2, **sizes)
    layer = lgatr.v1.SelfAttention(config).double()
    mv, s = inputs()
    mask = torch.ones(5, 5).tril().bool()
    want = layer(mv, scalars=s, attn_mask=mask)
    names = "multivectors", "additional_qk_features_mv", "scalars", "additional_qk_features_s"
    called_as(layer, Copy())
    assert len(layer._forward_pre_hooks) == 1
    for given, named in (
        ((mv, None, s, None, mask), {}),
        ((mv,), {"scalars": s, "attention_mask": mask}),
        ((), dict(zip(names, (mv, None, s, None))) | {"attention_mask": mask}),
    ):
        for got, wanted in zip(layer(*given, **named), want, strict=True):
            assert torch.equal(got, wanted)


def test_caches_are_emptied():
    """What was computed in float32 before must not be compared in float64."""

    class Keeps(nn.Module):
        def __init__(self):
            super().__init__()
            self.kept = None
            self.size = 3

        def forward(self, x):
            self.kept = x
            return x

    module = Keeps()
    module(torch.ones(1))
    empty_caches(module)
    assert module.kept is None and module.size == 3


def test_roundings_are_taken_out():
    module = nn.Module()
    module.register_buffer("epsilon", torch.tensor(0.01), persistent=False)
    module.register_buffer("inv_freq", 10000 ** (-torch.arange(4).float() / 4))
    module.register_buffer("other", torch.tensor([1.0, 0.3, 0.2]))
    other = module.other.double()
    widen(module)
    assert module.epsilon.item() == 0.01
    exact = 10000.0 ** (-torch.arange(4).double() / 4)
    assert torch.equal(module.inv_freq, exact) and torch.equal(module.other, other)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("value", [0.01, 0.02, 1.0, 1e-3, 0.5])
def test_numbers_in_buffers_are_short_decimals(dtype, value):
    assert number(torch.tensor(value, dtype=dtype).double()) == value


def test_other_numbers_in_buffers_stay():
    assert number(torch.tensor(1 / 3, dtype=torch.float64)) == 1 / 3
    assert number(torch.ones(2)) is None and number(True) is None


def test_a_method_that_ours_has_not_is_not_lost():
    class More(Mix):
        def norms(self):
            return self.weight.norm()

    layer = More(2, 3)
    found = flashcliff.accelerate(layer)
    assert found.model is layer and "its class has a `norms`" in found.kept[""]


def test_a_buffer_that_ours_has_not_stays_in_the_state_dict():
    class Buffered(Mix):
        def __init__(self):
            super().__init__(2, 3)
            table = self.table
            del self.table
            self.register_buffer("table", table)

    layer = Buffered()
    state = {name: tensor.clone() for name, tensor in layer.state_dict().items()}
    found = flashcliff.accelerate(layer)
    assert type(found.model) is gatr.EquiLinear, str(found)
    assert found.model.state_dict().keys() == state.keys()
    found.model.load_state_dict(state)


class Bilinear(nn.Module):
    """A bilinear layer of L-GATr that adds its input, so that it has no counterpart; it may read what its layers have."""

    def __init__(self, reads):
        super().__init__()
        group = lgatr.PrimitivesConfig()
        for name in ("linear_left", "linear_right", "linear_out"):
            setattr(self, name, Tenfold(group))
        self.reads = reads

    def forward(self, multivectors, scalars=None):
        left, right = self.linear_left(multivectors)[0], self.linear_right(multivectors)[0]
        if self.reads:
            left = left * self.linear_out._secret()
        return multivectors + self.linear_out(left * right)[0], None


class Tenfold(nn.Module):
    """A linear map by L-GATr's ten maps."""

    def __init__(self, group):
        super().__init__()
        layer = lgatr.EquiLinear(2, 2, group)
        self.weight, self.bias = layer.weight, layer.bias
        self.like = [layer]

    def _secret(self):
        return 2.0

    def forward(self, multivectors, scalars=None):
        layer = self.like[0].to(self.weight.dtype)
        layer.weight, layer.bias = self.weight, self.bias
        return layer(multivectors)


@pytest.mark.parametrize("reads", [False, True])
def test_layers_are_taken_back_where_the_module_around_them_does_not_run(reads):
    model = nn.Sequential(Bilinear(reads))
    layers = dict(model[0].named_children())
    found = flashcliff.accelerate(model)
    assert "differ" in found.kept["0"]
    if reads:
        assert not found.replaced and not found.differences
        assert dict(model[0].named_children()) == layers
        assert "does not run with layers of ours" in found.kept["0"]
    else:
        assert sorted(found.replaced) == ["0.linear_left", "0.linear_out", "0.linear_right"]
    model(torch.randn(3, 2, 16))
