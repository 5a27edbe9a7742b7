"""Writes and prints the results of the sweeps."""

import json
import os
import re
import sys

OPERATORS = ("sgp", "fcgp", "layer", "steerable")
PASSES = ("forward", "forward+backward")


def right_ones(differences, tolerance, own_tolerances=None):
    """The variants whose differences to float64 are small. The others are reported. Some tensors
    have tolerances of their own."""
    limits = own_tolerances or {}
    right = []
    for name, found in differences.items():
        # The negation counts NaN as wrong.
        wrong = {t: off for t, off in found.items() if not off < limits.get(t, tolerance)}
        if not wrong:
            right.append(name)
            continue
        message = f"{name} is wrong: {wrong}"
        if name == "flashcliff":
            raise SystemExit(message)
        print(message, flush=True)
    return right


def command():
    """The command line of the script, without the folders of this machine."""
    return " ".join(os.path.basename(word) for word in sys.argv)


def write(path, results):
    """Writes a file completely or not at all."""
    with open(f"{path}.part", "w", encoding="utf-8") as file:
        json.dump(results, file, indent=1)
        file.write("\n")
    os.replace(f"{path}.part", path)


def seconds(point, kind, variant, mode=None):
    """The time of a variant: the GPU's own time if there is one."""
    times = point["seconds"][kind].get(variant)
    if times is None:
        return None
    return times[mode or ("queued" if "queued" in times else "eager")]


def line(point):
    """One point as a line: times, and the ratios of the others' times to flashcliff's."""
    parts = []
    for kind in PASSES:
        own = seconds(point, kind, "flashcliff")
        for name in point["seconds"][kind]:
            time = seconds(point, kind, name)
            ratio = f" {time / own:.2f}x" if own and name != "flashcliff" else ""
            parts.append(f"{name} {kind} {time * 1e3:.4f} ms{ratio}")
    return f"{title(point)}: " + "; ".join(parts)


def title(point):
    return f"{point['operator']} {point['dim']}-D {point['batch']}x{point['channels']}"


def table(results):
    """A table in Markdown: a row for each point, with times of flashcliff and ratios of the
    others to them."""
    points = results["points"]
    variants = {v for p in points for v in p["seconds"]["forward"]} - {"flashcliff"}
    variants = sorted(variants, key=_with_numbers)
    with_memory = any("bytes" in p for p in points)
    rate = results.get("environment", {}).get("matmul_flops_per_second")
    with_flops = rate and any("flops" in p for p in points)
    heads = ["", *(f"{head} {kind}" for kind in PASSES for head in ("flashcliff, ms", *variants))]
    if with_memory:
        heads += ["peak, MiB", *(f"peak / {v}" for v in variants)]
    if with_flops:
        heads += [f"of the matmul rate, {kind}" for kind in PASSES]
    rows = ["| " + " | ".join(heads) + " |", "|---" * len(heads) + "|"]
    for point in sorted(points, key=_order):
        cells = [title(point)]
        for kind in PASSES:
            own = seconds(point, kind, "flashcliff")
            cells.append(f"{own * 1e3:.3f}" if own else "")
            for variant in variants:
                other = seconds(point, kind, variant)
                cells.append(f"{other / own:.2f}x" if own and other else "")
        if with_memory:
            peaks = {n: b["peak"] for n, b in point["bytes"]["forward+backward"].items()}
            own = peaks.get("flashcliff")
            cells.append(f"{own / 2**20:.0f}" if own else "")
            cells += [f"{own / peaks[v]:.2f}" if own and v in peaks else "" for v in variants]
        if with_flops:
            for kind in PASSES:
                own, flops = seconds(point, kind, "flashcliff"), point.get("flops")
                own_rate = point.get("matmul_flops_per_second", rate)
                cells.append(f"{flops[kind] / own / own_rate:.0%}" if own and flops else "")
        rows.append("| " + " | ".join(cells) + " |")
    return "\n".join(rows) + "\n"


def _with_numbers(name):
    """A sort key by which 64 comes before 128."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def _order(point):
    return OPERATORS.index(point["operator"]), -point["dim"], point["batch"], point["channels"]
