"""Writes golden_layers.json: the output of networks of flashcliff.nn.transformer, for weights and inputs that golden.rs makes by the same formula.

    pip install flashcliff && python crates/flashcliff-candle/tests/transformer/golden_layers.py
"""

import json

import torch
from flashcliff import Algebra
from flashcliff.nn.transformer import GATransformer

from golden import (
    BLOCKS,
    HEADS,
    HERE,
    HIDDEN,
    INPUT,
    ITEMS,
    OUTPUT,
    RATIO,
    SAMPLES,
    noise,
)

# That of GATr, and of L-GATr before 2.0.
OF_SCALARS = {"scalar_activation": "gelu"}
NETWORKS = {
    "gains": (Algebra(1, 3, 0), {"affine": True, **OF_SCALARS}, {}),
    "lgatr_2": (Algebra(1, 3, 0), {"affine": True}, {"bias": False}),
    "rotary": (Algebra(3, 0, 1), OF_SCALARS, {"rotary": True, "rotary_base": 50}),
}


def output(algebra, options, attention):
    net = GATransformer(
        algebra,
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
    mv = noise((16, SAMPLES, ITEMS, INPUT[0]), 1)
    s = noise((SAMPLES, ITEMS, INPUT[1]), 2)
    with torch.no_grad():
        out_mv, out_s = net(mv, s)
    return {
        "multivectors": out_mv.flatten().tolist(),
        "scalars": out_s.flatten().tolist(),
    }


if __name__ == "__main__":
    golden = {name: output(*network) for name, network in NETWORKS.items()}
    (HERE / "golden_layers.json").write_text(json.dumps(golden, indent=1) + "\n")
