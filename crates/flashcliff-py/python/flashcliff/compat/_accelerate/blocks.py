"""Counterparts of attention, MLPs and blocks of GATr and L-GATr, by their shape."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from torch import nn

from .. import gatr, lgatr
from ..lgatr import v1
from .counterpart import Call, Counterpart, Draw, Form, NotReplaced
from .layers import (
    activation_of,
    grouped,
    items_of,
    primitives_of,
    tensors,
    with_reference,
)
from .structure import (
    channels,
    has,
    heads_of,
    is_linear,
    maps_of,
    mask,
    mask_name,
    parameters,
    probabilities,
    scalars,
)

__all__ = [
    "FORMS",
    "attention_config",
    "copied",
    "dropout_of",
    "is_attention",
    "is_block",
    "mlp_config",
    "with_mask",
]


def copied(config: Any, to: Any, **others: Any) -> Any:
    """A configuration of ours with the fields of the other that ours has too, and with others."""
    names = {field.name for field in dataclasses.fields(to)} - others.keys()
    return to(**{n: value for n, value in vars(config).items() if n in names}, **others)


def dropout_of(module: nn.Module) -> float | None:
    """The one probability with which layers within a module drop, or ``None`` where nothing does."""
    found = set(probabilities(module))
    if len(found) > 1:
        raise NotReplaced(f"expected one probability of dropout, got {sorted(found)}")
    return found.pop() if found else None


def with_mask(calls: Callable[[Draw], list[Call]], name: str) -> Callable[[Draw], list[Call]]:
    """The same calls, and all of them with a mask of the items, whose axis is the third from the last."""

    def found(draw: Draw) -> list[Call]:
        masked: list[Call] = []
        for given, named in calls(draw):
            items = given[0].shape[-3]
            masked.append((given, {**named, name: mask(items, items, given[0])}))
        return [*calls(draw), *masked]

    return found


def is_attention(m: Any) -> bool:
    """Whether a module is self-attention of multivectors."""
    if not has(m, ("qkv_module", "out_linear")) or not is_linear(m.out_linear):
        return False
    return has(m.qkv_module, ("in_linear",)) or has(
        m.qkv_module, ("q_linear", "k_linear", "v_linear")
    )


def attention_config(m: Any) -> Any:
    """The configuration of self-attention, as an object of ours of its version."""
    shared = has(m.qkv_module, ("q_linear",))
    first = m.qkv_module.v_linear if shared else m.qkv_module.in_linear
    seen = m.qkv_module.q_linear if shared else first
    given = getattr(m, "config", None) or getattr(m.qkv_module, "config", None)
    if given is None:
        raise NotReplaced("it has no `config`, which says how many channels its heads have")
    mv, s = channels(seen)[0], scalars(seen)[0]
    more = {n: getattr(given, f"additional_qk_{n}_channels", 0) for n in ("mv", "s")}
    sizes = {
        "num_heads": heads_of(m),
        "multi_query": shared,
        "in_mv_channels": mv - more["mv"],
        "in_s_channels": None if s is None else s - more["s"],
        "out_mv_channels": channels(m.out_linear)[1],
        "out_s_channels": scalars(m.out_linear)[1],
        "dropout_prob": dropout_of(m),
    }
    if maps_of(m) == 9:
        return copied(given, gatr.SelfAttentionConfig, **sizes)
    scaled = {"head_scale": "head_scale" in m._parameters}
    if hasattr(given, "increase_hidden_channels"):
        return copied(given, v1.SelfAttentionConfig, **sizes, **scaled)
    sizes |= {n: sizes[n] or 0 for n in ("in_s_channels", "out_s_channels")}
    return copied(given, lgatr.SelfAttentionConfig, **sizes, **scaled)


def _attention(m: Any) -> list[Counterpart]:
    config, maps = attention_config(m), maps_of(m)
    mv, s = config.in_mv_channels, config.in_s_channels
    more = config.additional_qk_mv_channels, config.additional_qk_s_channels
    calls = with_mask(_with_more(items_of(mv, s), *more), mask_name(m))
    return [Counterpart(make, calls) for make in _attention_makers(config, maps)]


def _attention_makers(config: Any, maps: int) -> Sequence[Callable[[], nn.Module]]:
    if maps == 9:
        return [partial(gatr.SelfAttention, config)]
    if isinstance(config, lgatr.SelfAttentionConfig):
        return [partial(lgatr.SelfAttention, config, lgatr.PrimitivesConfig(subgroup=maps == 10))]
    return grouped(maps, partial(v1.SelfAttention, config), product=False)


def _with_more(
    calls: Callable[[Draw], list[Call]], mv: int, s: int
) -> Callable[[Draw], list[Call]]:
    """The same calls with more features of queries and keys."""

    def found(draw: Draw) -> list[Call]:
        made: list[Call] = []
        for given, named in calls(draw):
            axes = tuple(given[0].shape[:-2])
            more = tensors(draw, axes, mv, s) if mv else (None, draw(*axes, s) if s else None)
            names = "additional_qk_features_mv", "additional_qk_features_s"
            made.append((given, {**named, **{n: x for n, x in zip(names, more) if x is not None}}))
        return made

    return found


def _is_cross(m: Any) -> bool:
    if not has(m, ("q_linear", "out_linear")) or not is_linear(m.q_linear):
        return False
    return has(m, ("kv_linear",)) or has(m, ("k_linear", "v_linear", "attention"))


def _cross(m: Any) -> list[Counterpart]:
    shared = has(m, ("k_linear",))
    others = m.k_linear if shared else m.kv_linear
    mv_q, s_q, mv, s = (
        channels(m.q_linear)[0],
        scalars(m.q_linear)[0],
        channels(others)[0],
        scalars(others)[0],
    )
    out_mv, out_s = channels(m.out_linear)[1], scalars(m.out_linear)[1]
    sizes = {"out_mv_channels": out_mv, "dropout_prob": dropout_of(m), "num_heads": heads_of(m)}
    # lgatr 2.0 has queries before what they attend to, all others after it.
    second = hasattr(m.config, "attn_ratio")
    calls = _cross_calls((mv_q, s_q), (mv, s), second, mask_name(m))
    if shared:
        sizes |= {"in_mv_channels": mv, "in_s_channels": s, "out_s_channels": out_s}
        config = copied(m.config, gatr.SelfAttentionConfig, multi_query=True, **sizes)
        return [Counterpart(partial(gatr.CrossAttention, config, mv_q, s_q), calls)]
    scaled = {"head_scale": "head_scale" in m._parameters}
    maps = maps_of(m)
    if second:
        sizes |= {"out_s_channels": out_s or 0, **scaled}
        config = copied(m.config, lgatr.CrossAttentionConfig, **sizes)
        group = lgatr.PrimitivesConfig(subgroup=maps == 10)
        return [Counterpart(partial(lgatr.CrossAttention, config, group), calls)]
    config = copied(m.config, v1.CrossAttentionConfig, out_s_channels=out_s, **sizes, **scaled)
    makers = grouped(maps, partial(v1.CrossAttention, config), product=False)
    return [Counterpart(make, calls) for make in makers]


def _cross_calls(
    query: tuple[int, Any], other: tuple[int, Any], second: bool, name: str
) -> Callable[[Draw], list[Call]]:
    def calls(draw: Draw) -> list[Call]:
        found: list[Call] = []
        for batch in ((2,), ()):
            q, k = tensors(draw, (*batch, 5), *query), tensors(draw, (*batch, 4), *other)
            of_both = {"scalars_q": q[1], "scalars_kv": k[1]}
            both = [q[0], k[0]] if second else [k[0], q[0]]
            found.append((both, {n: x for n, x in of_both.items() if x is not None}))
        given, named = found[0]
        return [*found, (given, {**named, name: mask(5, 4, given[0])})]

    return calls


def _is_mlp(m: Any) -> bool:
    if not isinstance(getattr(m, "layers", None), nn.ModuleList) or parameters(m):
        return False
    return bool(maps_of(m)) and all(is_linear(x) or not parameters(x) for x in m.layers)


def mlp_config(m: Any) -> tuple[Any, bool]:
    """The configuration of an MLP as an object of ours of its version, and whether its first layer multiplies.

    Hidden layers are told from the shapes of weights.
    """
    layers = [x for x in m.layers if is_linear(x) or has(x, ("linear_out",))]
    outs = [x.linear_out if has(x, ("linear_out",)) else x for x in layers]
    first = layers[0].linear_left if has(layers[0], ("linear_left",)) else layers[0]
    mv = [channels(first)[0], *(channels(x)[1] for x in outs)]
    s = [scalars(first)[0], *(scalars(x)[1] for x in outs)]
    gates = [x for x in m.layers if not list(x.parameters()) and not probabilities(x)]
    name, alike = activation_of(gates, getattr(getattr(m, "config", None), "activation", None))
    product, drop = first is not layers[0], dropout_of(m)
    options: dict[str, Any] = {"dropout_prob": drop}
    if maps_of(m) == 9:
        options |= {"mv_channels": mv, "s_channels": s, "activation": name}
        return gatr.MLPConfig(**options), product
    options["mv_channels"] = mv[0]
    ratio = mv[1] // mv[0] if len(mv) > 2 else 1
    # Some activations are the same in both versions, of which the first keeps its configuration.
    if alike or (name in ("relu", "sigmoid", "silu") and not hasattr(m, "config")):
        options |= {"s_channels": s[0] or 0, "nonlinearity": name, "mlp_ratio": ratio}
        return lgatr.MLPConfig(**options, num_layers_mlp=len(layers)), product
    options |= {"s_channels": s[0], "activation": name, "increase_hidden_channels": ratio}
    return v1.MLPConfig(**options, num_hidden_layers=len(layers) - 1), product


def _mlp(m: Any) -> list[Counterpart]:
    config, product = mlp_config(m)
    if isinstance(config, gatr.MLPConfig):
        mv, s = config.mv_channels or [0], config.s_channels or [None]
        calls = with_reference(items_of(mv[0], s[0]))
        return [Counterpart(partial(gatr.GeoMLP, config), calls)]
    calls, maps = items_of(config.mv_channels, config.s_channels), maps_of(m)
    if isinstance(config, v1.MLPConfig):
        makers = grouped(maps, partial(v1.GeoMLP, config), product)
        return [Counterpart(make, calls) for make in makers]
    groups = primitives_of(maps, product)
    return [Counterpart(partial(lgatr.GeoMLP, config, group), calls) for group in groups]


def is_block(m: Any) -> bool:
    """Whether a module is a block of self-attention and an MLP."""
    if not has(m, ("attention", "mlp")) or not is_attention(m.attention) or not _is_mlp(m.mlp):
        return False
    # A block with a condition has no counterpart by itself; its parts have.
    if has(m, ("crossattention",)):
        return False
    return has(m, ("norm",)) or has(m, ("norm1", "norm2"))


def _block(m: Any) -> list[Counterpart]:
    attention, (mlp, product), maps = attention_config(m.attention), mlp_config(m.mlp), maps_of(m)
    mv, s, drop = attention.in_mv_channels, attention.in_s_channels, dropout_of(m)
    more = attention.additional_qk_mv_channels, attention.additional_qk_s_channels
    calls = with_mask(_with_more(items_of(mv, s), *more), mask_name(m))
    if maps == 9:
        make = partial(gatr.GATrBlock, mv, s, attention, mlp, drop, checkpointed(m))
        return [Counterpart(make, with_reference(calls))]
    if isinstance(attention, v1.SelfAttentionConfig):
        makers = grouped(maps, partial(v1.LGATrBlock, mv, s, attention, mlp, drop), product)
        return [Counterpart(make, calls) for make in makers]
    of, rest = (mv, s, attention, mlp), (drop, bool(parameters(m.norm1)))
    makers = [
        partial(lgatr.LGATrBlock, *of, group, *rest) for group in primitives_of(maps, product)
    ]
    return [Counterpart(make, calls) for make in makers]


def checkpointed(block: Any) -> list[str] | None:
    """The parts of a block that it computes again in the backward pass."""
    names = (("mlp", "_checkpoint_mlp"), ("attention", "_checkpoint_attn"))
    return [part for part, name in names if getattr(block, name, False)] or None


FORMS = [
    Form("self-attention", is_attention, _attention),
    Form("cross-attention", _is_cross, _cross),
    Form("an MLP of multivectors", _is_mlp, _mlp),
    Form("a block", is_block, _block),
]
"""Attention, MLPs and blocks of GATr and L-GATr."""
