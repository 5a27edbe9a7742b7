"""Parameters without elements have a place, as in the packages, because optimisers keep their states by position.

The order of all others is compared in `test_packages`.
"""

import pytest

from flashcliff.compat import lgatr
from flashcliff.compat.lgatr import layers, v1


def names(module):
    return [name for name, _ in module.named_parameters()]


@pytest.mark.parametrize("version", [1, 2])
def test_parameters_without_elements_have_a_place(version):
    """The packages have them, so positions would differ without them."""
    kind = lgatr.LGATr if version == 2 else v1.LGATr
    sizes = dict(num_blocks=1, in_mv_channels=2, out_mv_channels=0, hidden_mv_channels=4)
    sizes |= dict(in_s_channels=3, out_s_channels=2, hidden_s_channels=8)
    net = kind(**sizes, attention={"num_heads": 2}, mlp={})
    last = {n: (tuple(p.shape), p.requires_grad) for n, p in net.linear_out.named_parameters()}
    assert list(last.items()) == [
        ("weight", ((0, 4, 10), False)),
        ("s2mvs.weight", ((0, 8), False)),
        ("s2mvs.bias", ((0,), False)),
        ("mvs2s.weight", ((2, 8), True)),
        ("mvs2s.bias", ((2,), True)),
        ("s2s.weight", ((2, 8), True)),
    ]


def test_zero_scalars_have_a_place():
    from flashcliff.compat import gatr

    found = names(gatr.EquiLinear(2, 3, in_s_channels=0, out_s_channels=4))
    assert found == ["weight", "mvs2s.weight", "mvs2s.bias", "s2s.weight"]
    layer = gatr.EquiLinear(2, 3, in_s_channels=0, out_s_channels=4)
    assert layer.s2s.weight.shape == (4, 0) and not layer.s2s.weight.requires_grad
    layer.reset_parameters()


@pytest.mark.parametrize("name", ["unit_scalar", "almost_unit_scalar"])
@pytest.mark.parametrize("kind", [ValueError, NotImplementedError])
def test_starts_that_need_scalars(name, kind):
    """The packages raise the second kind of error."""
    from flashcliff import MissingScalarsError
    from flashcliff.compat import gatr

    for make in (
        lambda: gatr.EquiLinear(2, 3, initialization=name),
        lambda: v1.EquiLinear(2, 3, initialization=name),
        lambda: layers.EquiLinear(2, 3, {}, initialization=name),
    ):
        with pytest.raises(kind, match="in_scalars >= 1") as raised:
            make()
        assert raised.type is MissingScalarsError
