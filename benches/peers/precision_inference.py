"""Trained networks whose tokens are stored in few bits when they are evaluated, for `transformers_precision.py`.

| tokens   | what                                                                    |
|----------|-------------------------------------------------------------------------|
| f32      | as they are; other scores are compared with the scores of this one      |
| tf32     | as they are, matrix products in TF32                                    |
| bf16     | all tokens rounded to bfloat16                                          |
| f16      | float16 with a scale                                                    |
| fp8      | float8_e4m3 with a scale                                                |
| fp8-part | float8_e4m3 with a scale; sums of tokens, which pass the whole network, stay float32 |

All but tf32 have float32 in matrix products. A second row of each, with the name of the other frame or basis of the task after it, is
evaluated there.
"""

import copy

import torch

from precision_basis import Storage, store_tokens

TYPES = {
    "f32": torch.float32,
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "fp8": torch.float8_e4m3fn,
}
# Types, and whether sums are stored in them.
TOKENS = {name: (dtype, True) for name, dtype in TYPES.items()}
TOKENS["fp8-part"] = torch.float8_e4m3fn, False


@torch.no_grad()
def stored(task, net):
    """For each way to store tokens: the test error, the root mean square of scores, and of their change."""
    torch.set_float32_matmul_precision("high")
    scores = {"tf32": task.predictions(net, "test")}
    torch.set_float32_matmul_precision("highest")
    for name, (dtype, sums) in TOKENS.items():
        for frame, (framed, null) in task.frames().items():
            own = net
            if null or dtype != torch.float32:
                own = copy.deepcopy(net)
                store_tokens(own, Storage(net.geometry.algebra, dtype, null), sums)
            scores[f"{name}-{frame}" if frame else name] = framed.predictions(own, "test")
    before = scores["f32"].double()
    return {
        name: {
            "test": task.error("test", found),
            "scores": _size(found.double()),
            "change": _size(found.double() - before),
        }
        for name, found in scores.items()
    }


def _size(x):
    return x.square().mean().sqrt().item()
