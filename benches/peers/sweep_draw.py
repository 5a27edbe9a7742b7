#!/usr/bin/env python3
"""Draws the results of `sweep_gpu.py` or `sweep_cpu.py`: a table and heatmaps. Needs matplotlib
only.

    python3 benches/peers/sweep_draw.py sweep.json --to benches/results

writes `<name>.md`, and for each other variant `<name>-<variant>.svg`: how many times as long as
flashcliff it takes, forward and forward+backward, and where memory was measured flashcliff's peak
as a part of its.
"""

import argparse
import json
import math
import os
import re

from sweep_results import OPERATORS, PASSES, seconds, table


def ratio(point, quantity, variant):
    """The number of one cell, or `None` if it was not measured."""
    if quantity == "memory":
        peaks = point.get("bytes", {}).get("forward+backward", {})
        if "flashcliff" not in peaks or variant not in peaks:
            return None
        return peaks["flashcliff"]["peak"] / peaks[variant]["peak"]
    own, other = (seconds(point, quantity, name) for name in ("flashcliff", variant))
    return other / own if own and other else None


def panel(axes, points, quantity, variant, heading):
    """A heatmap over batch sizes and channels."""
    batches = sorted({p["batch"] for p in points})
    channels = sorted({p["channels"] for p in points})
    cells = [[None] * len(channels) for _ in batches]
    for point in points:
        value = ratio(point, quantity, variant)
        cells[batches.index(point["batch"])][channels.index(point["channels"])] = value
    # Green is good for flashcliff: the other takes more time, or flashcliff takes less memory.
    # Fourfold is full green.
    memory = quantity == "memory"
    colours = {"cmap": "RdYlGn_r" if memory else "RdYlGn", "vmin": -2.0, "vmax": 2.0}
    shown = [[float("nan") if c is None else math.log2(c) for c in row] for row in cells]
    axes.imshow(shown, aspect="auto", **colours)
    for i, row in enumerate(cells):
        for j, value in enumerate(row):
            if value is not None:
                text = f"{value:.2f}" if memory else f"{value:.2f}x"
                axes.text(j, i, text, ha="center", va="center", fontsize=8)
    axes.set_xticks(range(len(channels)), channels, fontsize=7)
    axes.set_yticks(range(len(batches)), batches, fontsize=7)
    axes.set_title(heading, fontsize=8)


def draw(results, variant, path):
    import matplotlib

    matplotlib.use("svg")
    # A fixed seed makes the file depend on the data alone.
    matplotlib.rcParams |= {"svg.hashsalt": "flashcliff", "svg.fonttype": "none"}
    import matplotlib.pyplot as plt

    points = results["points"]
    rows = sorted({(p["operator"], p["dim"]) for p in points}, key=lambda r: (OPERATORS.index(r[0]), -r[1]))
    quantities = [*PASSES, *(["memory"] if any("bytes" in p for p in points) else [])]
    size = (2.9 * len(quantities), 2.3 * len(rows) + 0.4)
    figure, grid = plt.subplots(len(rows), len(quantities), figsize=size, squeeze=False)
    for (operator, dim), line in zip(rows, grid):
        chosen = [p for p in points if (p["operator"], p["dim"]) == (operator, dim)]
        for quantity, axes in zip(quantities, line):
            heading = "peak memory, forward+backward" if quantity == "memory" else quantity
            panel(axes, chosen, quantity, variant, f"{operator} {dim}-D: {heading}")
    environment = results["environment"]
    machine = environment.get("gpu") or environment.get("cpu")
    figure.suptitle(
        f"{variant} / flashcliff in time, flashcliff / {variant} in memory; {machine}"
        if "memory" in quantities
        else f"{variant} / flashcliff in time; {machine}",
        fontsize=9,
    )
    figure.supxlabel("channels", fontsize=8)
    figure.supylabel("batch", fontsize=8)
    figure.tight_layout()
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("results", metavar="FILE", help="JSON of a sweep")
    parser.add_argument("--to", metavar="FOLDER", default=".", help="where the files go")
    parser.add_argument("--table-only", action="store_true", help="no heatmaps, no matplotlib")
    arguments = parser.parse_args()
    with open(arguments.results, encoding="utf-8") as file:
        results = json.load(file)
    name = os.path.join(arguments.to, os.path.splitext(os.path.basename(arguments.results))[0])
    with open(f"{name}.md", "w", encoding="utf-8") as file:
        file.write(table(results))
    print(table(results))
    if arguments.table_only:
        return
    measured = {v for p in results["points"] for v in p["seconds"]["forward"]}
    for variant in sorted(measured - {"flashcliff"}):
        path = f"{name}-{re.sub('[^a-z-]+', '-', variant.lower())}.svg"
        draw(results, variant, path)
        print(path)


if __name__ == "__main__":
    main()
