"""``python -m flashcliff`` trains a small network, and so shows that the installation works; ``python -m flashcliff info`` prints
:func:`flashcliff.info`. The command ``flashcliff`` does the same, and passes all other commands on to the Rust program ``flashcliff``.

CGENN's network for pseudoscalars learns the signed volume that three vectors span. Its layers commute with rotations and
reflections, so it knows from the start that a mirror changes the sign; the program measures this at the end.
"""

from __future__ import annotations

import os
import sys
import time
from pathlib import Path

from . import _info, build_info

STEPS = 300
BATCH = 256


def main() -> int:
    """Trains on the CPU for some seconds. Returns the exit status, 0 if the network has learned."""
    try:
        import torch
    except ImportError:
        print("expected PyTorch, found none; run `pip install torch`", file=sys.stderr)
        return 2
    from .nn.models import Volumes

    info = build_info()
    cuda = "with" if info["cuda"] else "without"
    print(f"flashcliff {info['version']}, {cuda} CUDA kernels, SIMD: {info['simd']}")

    def volumes(vectors: torch.Tensor) -> torch.Tensor:
        return torch.linalg.det(vectors)

    generator = torch.Generator().manual_seed(0)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = Volumes(points=3, features=16, gates=1)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.01)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimiser, STEPS)
    start = time.perf_counter()
    for step in range(STEPS + 1):
        vectors = torch.randn(BATCH, 3, 3, generator=generator)
        loss = (model(vectors) - volumes(vectors)).square().mean()
        if step % (STEPS // 6) == 0:
            print(f"step {step:3}  mean squared error {loss.item():8.5f}")
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
        schedule.step()
    seconds = time.perf_counter() - start

    vectors = torch.randn(1024, 3, 3, generator=generator)
    with torch.no_grad():
        guess, wanted = model(vectors), volumes(vectors)
        mirrored = model(vectors * torch.tensor([-1.0, 1.0, 1.0]))
    error = ((guess - wanted).square().mean() / wanted.square().mean()).item()
    off = ((guess + mirrored).abs().max() / guess.abs().max()).item()
    print(
        f"trained in {seconds:.1f} s; unseen vectors: {100 * error:.2f} % of the variance is left"
    )
    print(f"a mirror changes the sign of the result, to {off:.0e}")
    learned = error < 0.05 and off < 1e-4
    if not learned:
        print(
            "expected less than 5 % and 1e-4: this installation computes wrongly", file=sys.stderr
        )
    return 0 if learned else 1


def command(arguments: list[str]) -> int:
    """Runs what the arguments ask for. Returns the exit status."""
    match arguments:
        case []:
            return main()
        case ["info"]:
            return _info.main()
    print(f"expected nothing or `info`, got `{' '.join(arguments)}`", file=sys.stderr)
    return 2


def script() -> int:
    """The command ``flashcliff`` of the package. The Rust program, which trains published models, has this name too, and the first one on
    the path is the one that a shell finds. So this one runs ``info`` and the small training itself, and passes other commands on.
    """
    arguments = sys.argv[1:]
    if arguments in ([], ["info"]):
        return command(arguments)
    program = rust_program()
    if program is not None:
        os.execv(program, [str(program), *arguments])
    print(
        f"expected nothing or `info`, got `{' '.join(arguments)}`; other commands need the Rust program `flashcliff` on the path: "
        "run `cargo install flashcliff-cli`, or in a clone `cargo install --path crates/flashcliff-cli`",
        file=sys.stderr,
    )
    return 2


def rust_program() -> Path | None:
    """The first program ``flashcliff`` on the path that is not a script. Python packages install scripts; on Windows they install
    programs, so there is no answer there.
    """
    if os.name == "nt":
        return None
    for folder in os.get_exec_path():
        path = Path(folder, "flashcliff")
        try:
            with path.open("rb") as file:
                is_script = file.read(2) == b"#!"
        except OSError:
            continue
        if not is_script and os.access(path, os.X_OK):
            return path
    return None


if __name__ == "__main__":
    sys.exit(command(sys.argv[1:]))
