"""Writes golden_layers.json: the output of networks of flashcliff.nn.transformer, for weights and inputs that golden.rs makes by the same formula.

    pip install flashcliff && python crates/flashcliff-candle/tests/transformer/golden_layers.py
"""

import json
from dataclasses import fields
from functools import partial

import torch
from flashcliff import Algebra
from flashcliff.nn.transformer import GATransformer, Geometry, GradeDropout, geometry_of

from golden import (
    BLOCKS,
    HEADS,
    HERE,
    HIDDEN,
    INPUT,
    ITEMS,
    MASK,
    OUTPUT,
    RATIO,
    SAMPLES,
    noise,
)

# That of GATr, and of L-GATr before 2.0.
OF_SCALARS = {"scalar_activation": "gelu"}
REINSERTED = {"reinsert_channels": (1, 0), "reinsert_scalars": (2,), **OF_SCALARS}
DROPPED = {"dropout": 0.3, "mlp_ratio": 3, "mlp_layers": 3, **OF_SCALARS}
OWN_KEYS = {"multi_query": False, "head_scale": True}


def changed(algebra, **choices):
    """The published geometry over an algebra, with other choices."""
    published = geometry_of(algebra)
    kept = {each.name: getattr(published, each.name) for each in fields(Geometry) if each.init}
    return Geometry(**{**kept, **choices})


NETWORKS = {
    "gains": (Algebra(1, 3, 0), {"affine": True, **OF_SCALARS}, {}),
    "lgatr_2": (Algebra(1, 3, 0), {"affine": True}, {"bias": False}),
    "rotary": (Algebra(3, 0, 1), OF_SCALARS, {"rotary": True, "rotary_base": 50}),
    "head_scale": (Algebra(1, 3, 0), OF_SCALARS, OWN_KEYS),
    "shared_head_scale": (Algebra(3, 0, 1), OF_SCALARS, {"head_scale": True}),
    "reinserted": (Algebra(3, 0, 1), REINSERTED, {}),
    "reinserted_own_keys": (Algebra(1, 3, 0), REINSERTED, {"multi_query": False}),
    "reinserted_scalars": (Algebra(3, 0, 0), {"reinsert_scalars": (0, 2), **OF_SCALARS}, {}),
    "wide": (Algebra(3, 0, 1), {"mlp_ratio": 3, "mlp_layers": 3, **OF_SCALARS}, {}),
    "narrow": (Algebra(4, 1, 0), {"mlp_ratio": 1, "mlp_layers": 1, **OF_SCALARS}, {}),
    "gate_first": (changed(Algebra(3, 0, 1), product=False), OF_SCALARS, {}),
    "few_bivectors": (changed(Algebra(3, 0, 1), bivectors=False), OF_SCALARS, {}),
    "no_bivectors": (changed(Algebra(1, 3, 0), bivectors=False), OF_SCALARS, {}),
    "prediction": (Algebra(3, 0, 1), DROPPED, {}),
    "training": (Algebra(3, 0, 1), DROPPED, {}),
}
# That of training.
SEED, PASS = 6, 2


def drawn(seed, at):
    """Number `at` of the stream of a seed, as crates/flashcliff/src/dropout.rs has it."""
    z = seed + (at + 1) * 0x9E3779B97F4A7C15 & MASK
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & MASK
    z = (z ^ z >> 27) * 0x94D049BB133111EB & MASK
    return z ^ z >> 31


def kept(layer, key, multivectors, scalars):
    """What a layer of dropout leaves of its input with the numbers of a key."""
    base = drawn(key, PASS)
    grades = layer.geometry.algebra.grades
    count, (channels, of_scalars) = max(grades) + 1, (multivectors.shape[-1], scalars.shape[-1])
    width = count * channels + of_scalars
    rows = scalars.numel() // of_scalars
    numbers = [drawn(base, place) >> 32 for place in range(rows * width)]
    kept = torch.tensor([number >= round(layer.p * 2**32) for number in numbers])
    factors = (kept.double() / (1 - layer.p)).view(rows, width)
    of_grades = factors[:, : count * channels].view(rows, count, channels)
    of_blades = of_grades.index_select(1, torch.tensor(grades)).transpose(0, 1)
    of_rest = factors[:, count * channels :]
    return multivectors * of_blades.view(multivectors.shape), scalars * of_rest.view(scalars.shape)


def draw_alike(net):
    """Lets dropout draw the numbers that candle draws: of each block, and of each place in it."""
    for block, layers in enumerate(net.blocks):
        of_block = drawn(SEED, block)
        dropouts = [layer for layer in layers.modules() if isinstance(layer, GradeDropout)]
        for place, layer in enumerate(dropouts):
            layer.forward = partial(kept, layer, drawn(of_block, place))


def output(name, geometry, options, attention):
    geometry = geometry_of(geometry)
    net = GATransformer(
        geometry,
        INPUT[0],
        OUTPUT[0],
        HIDDEN[0],
        INPUT[1],
        OUTPUT[1],
        HIDDEN[1],
        blocks=BLOCKS,
        attention={"heads": HEADS, "ratio": RATIO, "multi_query": True, **attention},
        **options,
    ).double()
    for at, (_, parameter) in enumerate(sorted(net.named_parameters())):
        parameter.data = noise(parameter.shape, 100 + at) / 2
    for _, buffer in net.named_buffers():
        # Frequencies are made in float32.
        if buffer.dim() == 1:
            count = 2 * len(buffer)
            steps = torch.arange(0, count, 2, dtype=torch.float64)
            buffer.data = attention["rotary_base"] ** (-steps / count)
    net.train(name == "training")
    if net.training:
        draw_alike(net)
    mv = noise((geometry.algebra.blade_count, SAMPLES, ITEMS, INPUT[0]), 1)
    s = noise((SAMPLES, ITEMS, INPUT[1]), 2)
    with torch.no_grad():
        out_mv, out_s = net(mv, s)
    return {
        "multivectors": out_mv.flatten().tolist(),
        "scalars": out_s.flatten().tolist(),
    }


if __name__ == "__main__":
    golden = {name: output(name, *network) for name, network in NETWORKS.items()}
    (HERE / "golden_layers.json").write_text(json.dumps(golden, indent=1) + "\n")
