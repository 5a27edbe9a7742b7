"""Charged bodies by NumPy in three and in five dimensions, and the checksums that the tests of `flashcliff_tasks::bodies` expect.

The order of draws and operations is that of EGNN's generator. The last bits of what it computes depend on the machine. The
tests expect the bits of x86-64 Linux with fused products and powers of the C library. CPUs with AVX-512 need

    NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL" python bodies_numpy.py
"""

import numpy as np

BODIES, SEED, DRAWN = 5, 43, (10_000, 2000, 2000)
DIMENSIONS = (3, 5)
FROM, TO, STEP, LIMIT, WALL = 3100, 4100, 0.001, 100, 5
# Samples of each split that the tests simulate.
TESTED = (4, 1, 1)


def starts(dim):
    """Charges, positions and velocities of all trajectories."""
    rng = np.random.RandomState(SEED)
    for _ in range(sum(DRAWN)):
        kinds = np.array([-1.0, 0.0, 1.0])
        charges = rng.choice(kinds, size=(BODIES, 1), p=[0.5, 0, 0.5])
        x, v = rng.randn(dim, BODIES), rng.randn(dim, BODIES)
        v = v * 0.5 / np.sqrt((v**2).sum(axis=0))
        over, under = x > WALL, x < -WALL
        v = np.where(over, -np.abs(v), np.where(under, np.abs(v), v))
        x = np.where(over, 2 * WALL - x, np.where(under, -2 * WALL - x, x))
        rng.randn(2, 49, dim, BODIES)
        yield charges, x, v


def forces(charges, x):
    squares = (x.T**2).sum(axis=1)
    # BLAS takes a matrix times its own transpose.
    distances = squares[:, None] + squares - 2 * x.T.dot(x)
    with np.errstate(all="ignore"):
        strengths = charges.dot(charges.T) / np.power(distances, 1.5)
    np.fill_diagonal(strengths, 0)
    differences = x[:, :, None] - x[:, None, :]
    return np.clip((strengths * differences).sum(axis=-1), -LIMIT, LIMIT)


def sample(charges, x, v):
    """Charges, positions and velocities at frame 30, positions at frame 40."""
    x, v = x.copy(), v.copy()
    for step in range(1, TO + 1):
        v += STEP * forces(charges, x)
        x += STEP * v
        if step == FROM:
            before = x.copy(), v.copy()
    return charges, *before, x


def checksum(arrays):
    """The FNV-1a hash of the bits."""
    value = 0xCBF29CE484222325
    for byte in b"".join(array.tobytes() for array in arrays):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return f"{value:#018x}"


def stored(samples):
    """The arrays of a split, as EGNN's loader rounds them."""
    charges, *vectors = (np.stack(column) for column in zip(*samples, strict=True))
    yield charges.astype("<f4")
    for vector in vectors:
        yield vector.swapaxes(1, 2).astype("<f4")


def report(dim):
    systems = list(starts(dim))
    print(f"{dim}D starts", checksum(array for system in systems for array in system))
    ends = np.cumsum(DRAWN)
    splits = [systems[end - size : end] for end, size in zip(ends, DRAWN, strict=True)]
    tested = [
        [sample(*system) for system in split[:count]]
        for split, count in zip(splits, TESTED, strict=True)
    ]
    print(f"{dim}D samples", checksum(a for split in tested for s in split for a in s))
    for split in tested:
        print(f"{dim}D stored", checksum(stored(split)))
    if dim == 5:
        # Numbers that a reader can compare: the first draws, and a body after its steps.
        charges, x, v = systems[0]
        print("5D first charges", charges.ravel().tolist())
        print("5D first positions of body 0", x[:, 0].tolist())
        print("5D first velocities of body 0", v[:, 0].tolist())
        print("5D first targets of body 0", tested[0][0][3][:, 0].tolist())


def main():
    for dim in DIMENSIONS:
        report(dim)


if __name__ == "__main__":
    main()
