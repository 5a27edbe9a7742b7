"""Turns a figure by a rotor, with arrays of NumPy.

`flashcliff.arrays` has the operators for all arrays that share memory by DLPack; the result is an array of the same library, without
a copy. They have no gradients there; `jax_layer.py` is about arrays of JAX, which have. Runs in a second.

    python examples/numpy_arrays.py
"""

import math

import numpy as np

from flashcliff import Algebra, arrays

SPACE = Algebra(3, 0, 0)
EVEN = (0, 2)
AXES = SPACE.blades_of((2,))


def rotor(angle, plane):
    """The rotor `cos(a/2) - sin(a/2) B` of a turn by an angle in a plane of two vectors, such as `e12`: `[4, 1, 1]`."""
    even = SPACE.blades_of(EVEN)
    turn = np.zeros((len(even), 1, 1), np.float32)
    turn[0] = math.cos(angle / 2)
    turn[even.index(SPACE.blades.index(plane))] = -math.sin(angle / 2)
    return turn


def turned(turn, points):
    """Points `[3, n, 1]` turned by a rotor `[4, 1, 1]`; arrays of one library, as is the result."""
    for_each = turn.repeat(points.shape[1], 1)
    # Of a rotor and vectors only the vectors are not zero; they come first.
    return arrays.sandwich(for_each, points, SPACE, left=EVEN, right=(1,))[:3]


def figure():
    """A helix, `[3, n, 1]`."""
    t = np.linspace(0, 6 * math.pi, 120, dtype=np.float32)
    return np.stack([np.cos(t), np.sin(t), t / (3 * math.pi) - 1])[:, :, None]


def picture(points, width=48, height=13):
    """The first and the third coordinate, as text."""
    rows = [[" "] * width for _ in range(height)]
    for x, z in zip(points[0, :, 0], points[2, :, 0]):
        column, row = int((x + 1.5) / 3 * width), int((1.5 - z) / 3 * height)
        if 0 <= column < width and 0 <= row < height:
            rows[row][column] = "o"
    return "\n".join("".join(row).rstrip() for row in rows)


def main():
    points, turn = figure(), rotor(math.pi / 3, "e13")
    found = turned(turn, points)
    print(picture(points))
    print("turned by 60 degrees in the plane of e1 and e3:")
    print(picture(found))
    c, s = math.cos(math.pi / 3), math.sin(math.pi / 3)
    matrix = np.array([[c, 0, -s], [0, 1, 0], [s, 0, c]], np.float32)
    error = np.abs(found[..., 0] - matrix @ points[..., 0]).max()
    print(f"a rotation matrix gives the same, to {error:.0e}")
    return error


if __name__ == "__main__":
    main()
