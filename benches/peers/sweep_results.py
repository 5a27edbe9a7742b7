"""Judges and prints the results of the sweeps."""

OPERATORS = ("sgp", "fcgp", "layer", "steerable")
PASSES = ("forward", "forward+backward")


def right_ones(differences, tolerance, own_tolerances=None):
    """The variants whose differences to float64 are small. The others are reported. Some tensors
    have their own tolerances."""
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


def shown(differences):
    """Differences to two digits."""
    return {name: {t: float(f"{off:.2g}") for t, off in found.items()} for name, found in differences.items()}


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
