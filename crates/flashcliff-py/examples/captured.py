"""Trains with each step as one CUDA graph, and shows where the time goes.

On a GPU small networks wait for the host; a captured step is one launch. Without a GPU the same program runs its steps eagerly
and says so. The loss is the same in both, bit for bit. Runs in a few seconds.

    python examples/captured.py
"""

import time
import warnings

import torch

import flashcliff
from flashcliff import nn

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
SPACE = flashcliff.Algebra(3, 0, 0)


def training():
    """A function that makes a step, and the model that it trains."""
    torch.manual_seed(0)
    model = torch.nn.Sequential(*(nn.FlashCliffordLayer(SPACE, 16) for _ in range(2))).to(DEVICE)
    gpu = DEVICE == "cuda"
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-2, capturable=gpu)

    def step(x, y):
        optimiser.zero_grad()
        loss = (model(x) - y).square().mean()
        loss.backward()
        optimiser.step()
        return loss.detach()

    return step, model


def run(step, steps):
    """The losses of a training run on the results of another layer, and the milliseconds of a step."""
    torch.manual_seed(2)
    teacher = nn.FlashCliffordLayer(SPACE, 16).to(DEVICE)
    generator = torch.Generator().manual_seed(1)
    losses = []
    start = time.perf_counter()
    for _ in range(steps):
        x = torch.randn(8, 64, 16, generator=generator).to(DEVICE)
        with torch.no_grad():
            y = teacher(x)
        losses.append(step(x, y))
    losses = torch.stack(losses).tolist()
    return losses, 1e3 * (time.perf_counter() - start) / steps


def main(steps=100):
    eager, _ = training()
    losses, slow = run(eager, steps)
    step, model = training()
    captured = flashcliff.capture(step, modules=model)
    with warnings.catch_warnings():
        # The reason is printed below.
        warnings.simplefilter("ignore", flashcliff.CaptureWarning)
        same, fast = run(captured, steps)
    if captured.graph_count:
        print(
            f"{captured.graph_count} graph; a step took {slow:.2f} ms eagerly and takes {fast:.2f} ms"
        )
    else:
        print(f"no graph, so each step ran eagerly: {captured.reason}")
    print(f"loss {losses[0]:.4f} to {losses[-1]:.4f}, the same captured: {losses == same}")
    with flashcliff.profile() as profile:
        run(eager, 10)
    shares = {}
    for row in profile.rows:
        what = f"{row.operator} {row.phase}"
        shares[what] = shares.get(what, 0) + row.share
    for what, share in shares.items():
        print(f"{share:6.1%}  {what}  {'#' * int(40 * share)}")
    return losses, same, captured, profile


if __name__ == "__main__":
    main()
