"""Prints two numbers of the output of GATr in plain PyTorch, for weights and inputs that whole.rs makes by the same formula.

The network is crates/flashcliff-py/tests/gatr_reference.py, with which the tests of the Python package compare flashcliff.compat.gatr.

    pip install torch && python crates/flashcliff-network/tests/suite/golden.py
"""

import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "flashcliff-py" / "tests"))

from gatr_reference import Reference  # noqa: E402

INPUT, OUTPUT, HIDDEN = (2, 3), (3, 2), (4, 6)
BLOCKS, HEADS, RATIO = 2, 2, 2
SAMPLES, ITEMS = 2, 3
MASK = (1 << 64) - 1


def noise(shape, seed):
    """Numbers in [-1, 1), as `networks::random` has them."""
    state = seed * 0x9E3779B97F4A7C15 & MASK | 1
    made = []
    for _ in range(torch.Size(shape).numel()):
        state ^= state << 13 & MASK
        state ^= state >> 7
        state ^= state << 17 & MASK
        made.append((state >> 11) / (1 << 52) - 1.0)
    return torch.tensor(made, dtype=torch.float64).view(shape)


def linear(name, before, after):
    shapes = {
        "weight": (after[0], before[0], 9),
        "s2mvs.weight": (after[0], before[1]),
        "s2mvs.bias": (after[0],),
    }
    if after[1]:
        shapes |= {
            "mvs2s.weight": (after[1], before[0]),
            "mvs2s.bias": (after[1],),
            "s2s.weight": (after[1], before[1]),
        }
    return {f"{name}.{rest}": shape for rest, shape in shapes.items()}


def times(channels, factor):
    return tuple(factor * count for count in channels)


def shapes(multi_query):
    found = linear("linear_in", INPUT, HIDDEN) | linear("linear_out", HIDDEN, OUTPUT)
    head = max(RATIO * HIDDEN[0] // HEADS, 1), max(RATIO * HIDDEN[1] // HEADS, 4)
    wide = times(HIDDEN, 2)
    for block in range(BLOCKS):
        attention = f"blocks.{block}.attention"
        if multi_query:
            for part, heads in (("q", HEADS), ("k", 1), ("v", 1)):
                found |= linear(
                    f"{attention}.qkv_module.{part}_linear", HIDDEN, times(head, heads)
                )
        else:
            found |= linear(f"{attention}.qkv_module.in_linear", HIDDEN, times(head, 3 * HEADS))
        found[f"{attention}.attention.log_weights"] = (HEADS, 1, head[0])
        found |= linear(f"{attention}.out_linear", times(head, HEADS), HIDDEN)
        layers = f"blocks.{block}.mlp.layers"
        for part in ("left", "right", "join_left", "join_right"):
            found |= linear(f"{layers}.0.linear_{part}", HIDDEN, (wide[0] // 2, 0))
        found |= linear(f"{layers}.0.linear_out", (wide[0], HIDDEN[1]), wide)
        found |= linear(f"{layers}.2", wide, HIDDEN)
    return found


def main():
    for name, multi_query in (("multi_query", True), ("own_keys", False)):
        named = sorted(shapes(multi_query).items())
        parameters = {key: noise(shape, 100 + at) / 2 for at, (key, shape) in enumerate(named)}
        net = Reference(parameters, HEADS)
        mv = noise((SAMPLES, ITEMS, INPUT[0], 16), 1)
        s = noise((SAMPLES, ITEMS, INPUT[1]), 2)
        out_mv, out_s = net.network(mv, s, BLOCKS)
        # Rows of tokens: blade by blade all channels, then the scalars.
        packed = torch.cat([out_mv.transpose(-1, -2).flatten(2), out_s], dim=-1)
        print(name, [(packed * noise(packed.shape, seed)).sum().item() for seed in (9, 10)])


if __name__ == "__main__":
    main()
