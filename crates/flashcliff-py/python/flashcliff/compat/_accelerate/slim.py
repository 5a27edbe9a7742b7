"""Counterparts of the layers and networks of L-GATr-slim, by their shape.

lgatr 2.0 has the components of vectors before the channels in its layers, and after them in its networks; 1.4 has them
after the channels everywhere.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from ...nn.transformer.gate import ACTIVATIONS
from .. import lgatr
from ..lgatr.layers import slim as v2_layers
from ..lgatr.layers import slim_attention as v2_attention
from ..lgatr.layers import slim_blocks as v2_blocks
from ..lgatr.v1 import slim as v1_nets
from ..lgatr.v1 import slim_layers as v1
from .blocks import dropout_of, with_mask
from .counterpart import Call, Counterpart, Draw, Form, NotReplaced
from .layers import small_too, with_condition
from .structure import children, has, parameters, signature

__all__ = ["FORMS", "is_network"]

Calls = Callable[[Draw], list[Call]]


def _is_linear(m: Any) -> bool:
    # Without scalar channels of the output there is no matrix of scalars.
    known = isinstance(m, nn.Module) and hasattr(m, "linear_s") and children(m) <= {"linear_s"}
    return known and parameters(m).keys() == {"weight_v"}


def _sizes(linear: Any) -> tuple[int, int, int, int]:
    """Vector channels of input and output of a linear layer, and scalar channels of both."""
    out_v, in_v = linear.weight_v.shape
    if linear.linear_s is None:
        return int(in_v), int(out_v), getattr(linear, "_in_s_channels", 0), 0
    out_s, in_s = linear.linear_s.weight.shape
    return int(in_v), int(out_v), int(in_s), int(out_s)


def _pair(draw: Draw, axes: tuple[int, ...], v: int, s: int, last: bool) -> list[Tensor]:
    """Vectors, whose components are the last axis or that before it, and scalars."""
    return [draw(*axes, v, 4) if last else draw(*axes, 4, v), draw(*axes, s)]


def _calls(v: int, s: int, last: bool) -> Calls:
    return lambda draw: [(_pair(draw, axes, v, s, last), {}) for axes in ((2, 5), (7,))]


def _both(
    v: int, s: int, second: Callable[[], nn.Module], first: Callable[[], nn.Module]
) -> list[Counterpart]:
    """The layers of lgatr 2.0 and of 1.4."""
    return [Counterpart(second, _calls(v, s, False)), Counterpart(first, _calls(v, s, True))]


def _linear(m: Any) -> list[Counterpart]:
    sizes, bias = _sizes(m), getattr(m.linear_s, "bias", None) is not None
    makers = (partial(kind, *sizes, bias) for kind in (v2_layers.SlimLinear, v1.Linear))
    return _both(sizes[0], sizes[2], *makers)


def _is_norm(m: Any) -> bool:
    shapes = parameters(m)
    if shapes:
        return shapes.keys() == {"weight_v", "weight_s"} and not children(m)
    takes = tuple(signature(m)) == ("vectors", "scalars") if isinstance(m, nn.Module) else False
    return takes and not children(m) and isinstance(getattr(m, "epsilon", None), float)


def _norm(m: Any) -> list[Counterpart]:
    if parameters(m):
        v, s = m.weight_v.shape[0], m.weight_s.shape[0]
        make = partial(v2_layers.SlimRMSNorm, v, s, m.epsilon)
        return [Counterpart(make, small_too(_calls(v, s, False)))]
    second = partial(v2_layers.SlimRMSNorm, 3, 4, m.epsilon, elementwise_affine=False)
    found = _both(3, 4, second, partial(v1.RMSNorm, m.epsilon))
    return [Counterpart(c.make, small_too(c.calls)) for c in found]


def _is_unit(m: Any) -> bool:
    return has(m, ("linear",)) and _is_linear(m.linear) and hasattr(m, "nonlinearity")


def _unit_sizes(m: Any) -> tuple[int, int, int, int]:
    # A gate has three vectors for each channel: one that it multiplies, and two of whose product it is made.
    in_v, out_v, in_s, out_s = _sizes(m.linear)
    return in_v, out_v // 3, in_s, out_s // 2


def _unit(m: Any) -> list[Counterpart]:
    sizes, options = _unit_sizes(m), _functions(m)
    second = partial(v2_layers.SlimGLU, *sizes, *options)
    return _both(sizes[0], sizes[2], second, partial(v1.GatedLinearUnit, *sizes, options[0]))


def _functions(unit: Any) -> tuple[str, str]:
    """The names of the functions that a unit applies to scalars and to products of vectors."""
    functions = unit.nonlinearity, getattr(unit, "nonlinearity_v", unit.nonlinearity)
    return _name(functions[0]), _name(functions[1])


def _name(function: Callable[[Tensor], Tensor]) -> str:
    at = torch.linspace(-3, 3, 13, dtype=torch.float64, device="cpu")
    try:
        found = function(at)
    except Exception as error:
        raise NotReplaced(f"its gate could not be run: {type(error).__name__}: {error}") from error
    for name in ("relu", "sigmoid", "tanh", "silu"):
        if torch.allclose(found, ACTIVATIONS[name](at), rtol=1e-12, atol=1e-12):
            return name
    # Both forms of it: the layer of each version has its own.
    if torch.allclose(found, ACTIVATIONS["gelu"](at), rtol=1e-2, atol=1e-2):
        return "gelu"
    raise NotReplaced("its gate applies an activation that is not known")


def _is_attention(m: Any) -> bool:
    return (
        has(m, ("linear_in", "linear_out")) and _is_linear(m.linear_in) and hasattr(m, "num_heads")
    )


def _attention(m: Any) -> list[Counterpart]:
    v, _, s, _ = _sizes(m.linear_in)
    arguments = v, s, m.num_heads, _ratio(m, v, s), dropout_of(m)
    second = partial(v2_attention.SlimSelfAttention, *arguments)
    return _masked(_both(v, s, second, partial(v1.SelfAttention, *arguments)))


def _masked(found: list[Counterpart]) -> list[Counterpart]:
    """The same counterparts, with a call that has a mask."""
    return [Counterpart(c.make, with_mask(c.calls, "attn_mask")) for c in found]


def _ratio(attention: Any, vectors: int, scalars: int) -> int:
    """The smallest ratio with the sizes of the attention. Ratios of the same sizes make the same network."""
    heads, sizes = attention.num_heads, (attention.hidden_v_channels, attention.hidden_s_channels)
    for ratio in range(1, heads * (max(sizes) + 1) + 1):
        if (max(ratio * vectors // heads, 1), max(ratio * scalars // heads, 4)) == sizes:
            return ratio
    raise NotReplaced(f"its attention has the sizes {sizes}, which no ratio gives")


def _is_mlp(m: Any) -> bool:
    layers = getattr(m, "layers", None)
    return isinstance(layers, nn.ModuleList) and len(layers) > 1 and _is_unit(layers[0])


def _mlp_arguments(m: Any) -> tuple[int, int, dict[str, Any]]:
    """Vector and scalar channels of an MLP, and its other sizes."""
    units = [x for x in m.layers if _is_unit(x)]
    names = {_functions(unit) for unit in units}
    if len(names) > 1:
        raise NotReplaced(f"expected one activation, got {sorted(names)}")
    v, hidden, s, hidden_s = _unit_sizes(units[0])
    of_scalars, of_vectors = names.pop()
    return (
        v,
        s,
        {
            "nonlinearity": of_scalars,
            "nonlinearity_v": of_vectors,
            "mlp_ratio": hidden // v if v else hidden_s // s,
            "dropout_prob": dropout_of(m),
            "layers": len(units) + 1,
        },
    )


def _mlp(m: Any) -> list[Counterpart]:
    v, s, found = _mlp_arguments(m)
    found["num_layers"] = found.pop("layers")
    first = {name: value for name, value in found.items() if name != "nonlinearity_v"}
    return _both(v, s, partial(v2_layers.SlimMLP, v, s, **found), partial(v1.MLP, v, s, **first))


def _is_block(m: Any) -> bool:
    return has(m, ("attention", "mlp")) and _is_attention(m.attention) and _is_mlp(m.mlp)


def _block_arguments(attention: Any, mlp: Any, whole: Any) -> tuple[int, int, dict[str, Any]]:
    v, s, found = _mlp_arguments(mlp)
    found["num_layers_mlp"] = found.pop("layers")
    found["num_heads"] = attention.num_heads
    found["attn_ratio"] = _ratio(attention, v, s)
    found["dropout_prob"] = dropout_of(whole)
    return v, s, found


def _block(m: Any) -> list[Counterpart]:
    v, s, found = _block_arguments(m.attention, m.mlp, m)
    first = {name: value for name, value in found.items() if name != "nonlinearity_v"}
    affine = bool(parameters(m.norm1)) if has(m, ("norm1",)) else False
    second = partial(v2_blocks.SlimBlock, v, s, norm_elementwise_affine=affine, **found)
    return _masked(_both(v, s, second, partial(v1.LGATrSlimBlock, v, s, **first)))


def is_network(m: Any) -> bool:
    """Whether a module is L-GATr-slim, with a condition or without."""
    if not has(m, ("linear_in", "blocks", "linear_out")) or not _is_linear(m.linear_in):
        return False
    block = next(iter(m.blocks), None)
    return _is_block(block) or has(block, ("selfattention", "crossattention", "mlp"))


def _network(m: Any) -> list[Counterpart]:
    block = m.blocks[0]
    condition = getattr(block, "crossattention", None)
    attention = block.attention if condition is None else block.selfattention
    _, _, shared = _block_arguments(attention, block.mlp, m)
    in_v, hidden_v, in_s, hidden_s = _sizes(m.linear_in)
    _, out_v, _, out_s = _sizes(m.linear_out)
    shared |= {
        "num_blocks": len(m.blocks),
        "in_v_channels": in_v,
        "out_v_channels": out_v,
        "hidden_v_channels": hidden_v,
        "in_s_channels": in_s,
        "out_s_channels": out_s,
        "hidden_s_channels": hidden_s,
        "checkpoint_blocks": getattr(m, "_checkpoint_blocks", False),
    }
    # 1.4 has neither two functions nor gains of norms.
    first = {name: value for name, value in shared.items() if name != "nonlinearity_v"}
    second = shared | {
        "norm_elementwise_affine": has(block, ("norm1",)) and bool(parameters(block.norm1)),
        "naive_amp": getattr(m, "_naive_amp", False),
    }
    if condition is None:
        calls = with_mask(_calls(in_v, in_s, True), "attn_mask")
        kinds = partial(lgatr.LGATrSlim, **second), partial(v1_nets.LGATrSlim, **first)
        return [Counterpart(make, calls) for make in kinds]
    cond_v, _, cond_s, _ = _sizes(condition.linear_in_kv)
    second |= {"v_channels_cond": cond_v, "s_channels_cond": cond_s}
    first |= {"condition_v_channels": cond_v, "condition_s_channels": cond_s}
    calls = with_condition(
        lambda draw: _pair(draw, (2, 5), in_v, in_s, True),
        lambda draw: _pair(draw, (2, 4), cond_v, cond_s, True),
    )
    make = partial(lgatr.ConditionalLGATrSlim, **second)
    return [
        Counterpart(make, calls),
        Counterpart(partial(v1_nets.ConditionalLGATrSlim, **first), calls),
    ]


FORMS = [
    Form("L-GATr-slim", is_network, _network),
    Form("a block of L-GATr-slim", _is_block, _block),
    Form("an MLP of L-GATr-slim", _is_mlp, _mlp),
    Form("self-attention of L-GATr-slim", _is_attention, _attention),
    Form("a gated unit of L-GATr-slim", _is_unit, _unit),
    Form("a linear layer of L-GATr-slim", _is_linear, _linear),
    Form("a norm of L-GATr-slim", _is_norm, _norm),
]
"""Layers and networks of L-GATr-slim, the largest first."""
