"""Draws the pictures of the gallery, `docs/guide/src/pictures/gallery-*.svg`, from what the examples of the Python package compute.

Each example is run as it is; what its functions were given and returned is read, and drawn without other packages.

    python docs/guide/gallery.py              # all pictures
    python docs/guide/gallery.py motor forces # some
"""

import contextlib
import importlib.util
import io
import math
import re
import sys
from pathlib import Path

import torch

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "crates/flashcliff-py/examples"
PICTURES = ROOT / "docs/guide/src/pictures"
WIDTH, HEIGHT, LEFT, TOP, RIGHT, BOTTOM = 360, 240, 52, 34, 12, 40
STYLE = """
    .page { fill: #ffffff } .text { fill: #1f2328 } .faint { fill: #59636e } path { fill: none; stroke-linecap: round }
    .line { stroke: #59636e } .bar { fill: #9ec5f4 }
    .b { stroke: #0969da } .c { stroke: #bc4c00 } .fb { fill: #0969da } .fc { fill: #bc4c00 }
    @media (prefers-color-scheme: dark) {
      .page { fill: #0d1117 } .text { fill: #e6edf3 } .faint { fill: #9198a1 } .line { stroke: #9198a1 }
      .b { stroke: #58a6ff } .c { stroke: #f0883e } .fb { fill: #58a6ff } .fc { fill: #f0883e }
    }
  """


# Drawing


def svg(title, body):
    """A picture with a title."""
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" role="img"'
    head += ' aria-labelledby="title" font-family="sans-serif" font-size="11">'
    page = f'<rect class="page" width="{WIDTH}" height="{HEIGHT}" rx="8"/>'
    lines = [f'<title id="title">{title}</title>', f"<style>{STYLE}</style>", page, *body]
    return "\n  ".join([head, *lines]) + "\n</svg>\n"


def text(x, y, words, kind="faint", anchor="middle", more=""):
    return f'<text class="{kind}" x="{x:g}" y="{y:g}" text-anchor="{anchor}"{more}>{words}</text>'


class Plot:
    """A plane of two axes: from ranges of numbers to places on the page."""

    def __init__(self, xs, ys, x_label, y_label, log=False, square=False):
        self.log = log
        (x0, x1), (y0, y1) = ((min(own), max(own)) for own in (xs, [self.height(y) for y in ys]))
        if square:  # one unit has the same length on both axes
            width, height = WIDTH - LEFT - RIGHT, HEIGHT - TOP - BOTTOM
            unit = 1.04 * max((x1 - x0) / width, (y1 - y0) / height)
            x0, x1 = ((x0 + x1 + sign * unit * width) / 2 for sign in (-1, 1))
            y0, y1 = ((y0 + y1 + sign * unit * height) / 2 for sign in (-1, 1))
        self.x, self.y = (x0, x1), (y0, y1)
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        self.body = [f'<path class="line" d="M{LEFT} {TOP}V{bottom}H{right}"/>']
        for at, anchor in ((x0, "start"), (x1, "end")):
            self.body.append(text(LEFT if at == x0 else right, bottom + 14, f"{at:.3g}", anchor=anchor))
        for at in (y0, y1):
            shown = 10**at if log else at
            self.body.append(text(LEFT - 4, bottom if at == y0 else TOP + 8, f"{shown:.2g}", anchor="end"))
        self.body.append(text((LEFT + right) / 2, HEIGHT - 10, x_label))
        middle = (TOP + bottom) / 2
        self.body.append(text(14, middle, y_label, more=f' transform="rotate(-90 14 {middle:g})"'))

    def height(self, y):
        return math.log10(y) if self.log else y

    def at(self, x, y):
        (x0, x1), (y0, y1) = self.x, self.y
        right, bottom = WIDTH - RIGHT, HEIGHT - BOTTOM
        px = LEFT + (x - x0) / (x1 - x0) * (right - LEFT)
        py = bottom - (self.height(y) - y0) / (y1 - y0) * (bottom - TOP)
        return f"{px:.0f} {py:.0f}"

    def curve(self, xs, ys, kind, width=2, more=""):
        points = "L".join(self.at(x, y) for x, y in zip(xs, ys))
        self.body.append(f'<path class="{kind}" stroke-width="{width}"{more} d="M{points}"/>')

    def dots(self, xs, ys, kind, width):
        points = "".join(f"M{self.at(x, y)}h0" for x, y in zip(xs, ys))
        self.body.append(f'<path class="{kind}" stroke-width="{width}" stroke-opacity="0.7" d="{points}"/>')

    def legend(self, *entries):
        """Words in the colours `b` and `c` of what they name, above the plot."""
        width = (WIDTH - LEFT - RIGHT) / len(entries)
        for place, (kind, words) in enumerate(entries):
            self.body.append(text(LEFT + width * (place + 0.5), 20, words, f"f{kind}"))


def agreement(title, what, series):
    """Predictions over what was wanted, with the diagonal: `(words, wanted, found)` for each series."""
    wanted = [x for _, own, _ in series for x in own]
    found = [x for _, _, own in series for x in own]
    plot = Plot(wanted, [*wanted, *found], f"{what}, true", "found")
    ends = min(wanted), max(wanted)
    plot.curve(ends, ends, "line", 1, ' stroke-dasharray="5 4"')
    for kind, width, (_, xs, ys) in zip("cb", (5, 3), series):
        plot.dots(xs, ys, kind, width)
    plot.legend(*zip("cb", (words for words, _, _ in series)))
    return svg(title, plot.body)


def learning(title, losses, change=None):
    """Losses over steps on a logarithmic axis; a line where something changed, with its words."""
    plot = Plot(range(len(losses)), losses, "step", "squared error", log=True)
    if change:
        at, words = change
        plot.curve((at, at), (min(losses), max(losses)), "c", 1, ' stroke-dasharray="5 4"')
        plot.legend(("c", words))
    plot.curve(range(len(losses)), losses, "b")
    return svg(title, plot.body)


def bars(title, what, shares):
    """A bar for each name and number."""
    top, step = max(shares.values()), (HEIGHT - 44) / len(shares)
    body = [text(WIDTH / 2, 20, what)]
    for place, (name, share) in enumerate(shares.items()):
        y, width = round(32 + place * step), round(280 * share / top)
        shown = f"{share:.0%}" if isinstance(share, float) else f"{share}"
        body.append(text(24, y + 12, name.strip(), "text", "start"))
        body.append(f'<rect class="bar" x="24" y="{y + 17}" width="{width}" height="{step - 25:.0f}" rx="3"/>')
        body.append(text(30 + width, y + 17 + round(step / 2 - 9), shown, "text", "start"))
    return svg(title, body)


# Examples


def run(name, spied=(), **options):
    """An example's module, the result of its `main`, what it printed, and calls of spied names.

    A call is `(arguments, result)`; the first one and the last three are kept.
    """
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    calls = {own: [] for own in spied}

    def spy(own, inner):
        def called(*given, **named):
            found = inner(*given, **named)
            calls[own].append((given, found))
            # Those between would keep the graphs of autograd of all steps.
            del calls[own][1:-3]
            return found

        return called

    for own in spied:
        setattr(module, own, spy(own, getattr(module, own)))
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        result = module.main(**options)
    return module, result, printed.getvalue(), calls


def numbers(tensor, count=150):
    return tensor.detach().flatten()[:count].tolist()


def motor():
    example, _, _, calls = run("motor", ["Motion", "moved"])
    network, points = calls["Motion"][0][1], calls["moved"][0][0][1][:24]
    identity = example.rotors.exp(torch.zeros(6, 1, 1), example.PGA)
    with torch.no_grad():
        times = [i / 8 for i in range(9)]
        motors = [example.rotors.interpolate(identity, network.motor(), t, example.PGA) for t in times]
        path = torch.stack([example.moved(own, points) for own in motors])[..., :2]
    plot = Plot(numbers(path[..., 0], None), numbers(path[..., 1], None), "x", "y", square=True)
    for at in range(path.shape[1]):
        plot.curve(*path[:, at].T.tolist(), "line", 1)
    plot.dots(*path[0].T.tolist(), "b", 6)
    plot.dots(*path[-1].T.tolist(), "c", 6)
    plot.legend(("b", "given points"), ("c", "moved by the learned motor"))
    return svg("Points on their way along a learned motor", plot.body)


def numpy_arrays():
    example, _, _, calls = run("numpy_arrays", ["turned"])
    ((_, points), found) = calls["turned"][0]
    start, end = ((own[0, :, 0].tolist(), own[2, :, 0].tolist()) for own in (points, found))
    plot = Plot([*start[0], *end[0]], [*start[1], *end[1]], "x", "z", square=True)
    plot.curve(*start, "b")
    plot.curve(*end, "c")
    plot.legend(("b", "a helix"), ("c", "turned by 60 degrees"))
    return svg("A helix, and the same turned by a rotor", plot.body)


def transformer():
    example, _, _, calls = run("transformer", ["Projection", "draw"])
    model = calls["Projection"][0][1]
    *given, target = calls["draw"][-1][1]
    with torch.no_grad():
        found = model(*given)
    series = [("the given point", target, given[0]), ("the network's", target, found)]
    title = "Coordinates of points projected on planes: of the points themselves, and as the network finds them"
    return agreement(title, "coordinate of the projection", [(words, numbers(x), numbers(y)) for words, x, y in series])


def local_frames():
    example, _, _, calls = run("local_frames", ["Masses", "draw", "boost"], steps=120)
    model = calls["Masses"][0][1]
    momenta, marks, target = calls["draw"][-1][1]
    boost = calls["boost"][0][1]
    with torch.no_grad():
        still, moved = model(momenta, marks), model(torch.tensordot(boost, momenta, 1), marks)
    series = [("at rest", target, still), ("boosted", target, moved)]
    title = "Invariant masses of particles at rest and of the same particles boosted"
    return agreement(title, "logarithm of the mass", [(words, numbers(x), numbers(y)) for words, x, y in series])


def forces():
    example, _, _, calls = run("forces", ["forces"], steps=200)
    (_, wanted), (_, found) = (own for _, own in calls["forces"][-3:-1])
    title = "Components of forces on atoms of new clusters: true forces, and forces that the network finds"
    return agreement(title, "force", [("new clusters", numbers(wanted), numbers(found))])


def potential():
    example, _, _, calls = run("potential", ["errors"], structures=16, steps=60)
    ((model, (structures, _, wanted), device), _) = calls["errors"][-1]
    batch = example.Structures.stack(structures).to(device)
    found = example.derivatives(model, batch).forces
    title = "Components of forces on silicon atoms: true forces, and forces that the network finds"
    return agreement(title, "force in eV/A", [("new crystals", numbers(wanted), numbers(found))])


def cgenn_model():
    example, _, _, calls = run("cgenn_model", ["train"])
    (before, _), (after, _) = (own for _, own in calls["train"])
    title = "The loss of a model before and after it was accelerated in the middle of training"
    return learning(title, before + after, (len(before), "accelerated here; the optimiser goes on"))


def captured():
    _, (_, _, _, profile), _, _ = run("captured")
    shares = {}
    for row in profile.rows:
        what = f"{row.operator} {row.phase}"
        shares[what] = shares.get(what, 0) + row.share
    title = "Shares of the time of training steps by operator and phase"
    return bars(title, "share of the time of ten steps, on a CPU", shares)


def own_signature():
    example, _, _, calls = run("own_signature", ["moved"])
    axes = calls["moved"][-1][1]  # the origin, and the ends of both axes of space and that of time
    lines = {"b": torch.tensor([[1.0, 0, 0], [0, 0, 0], [0, 0, 1]]), "c": axes[[1, 0, 3]]}
    places = torch.cat([own[:, [0, 2]] for own in lines.values()])
    plot = Plot(places[:, 0].tolist(), places[:, 1].tolist(), "place", "time", square=True)
    for kind, own in lines.items():
        plot.curve(own[:, 0].tolist(), own[:, 2].tolist(), kind)
        x, _, t = own[1].tolist()
        plot.curve((x, x + 0.9), (t, t + 0.9), "line", 1, ' stroke-dasharray="5 4"')
    plot.legend(("b", "axes of an observer"), ("c", "of another, by the found motor"))
    return svg("Axes of place and time of two observers, with the light that leaves their origins", plot.body)


def exported():
    _, _, printed, _ = run("exported")
    counts = re.findall(r"(\d+) (\w+)", printed.splitlines()[1])
    return bars("The most frequent nodes of a file of ONNX", "nodes of the network in ONNX", {name: int(n) for n, name in counts})


def jax_layer():
    _, (losses, _, _), _, _ = run("jax_layer")
    return learning("The loss of a layer that is trained in JAX", [float(loss) for loss in losses])


DRAWN = [motor, numpy_arrays, transformer, local_frames, forces, potential, cgenn_model, captured, own_signature, exported, jax_layer]


if __name__ == "__main__":
    for draw in DRAWN:
        if not sys.argv[1:] or draw.__name__ in sys.argv[1:]:
            path = PICTURES / f"gallery-{draw.__name__.replace('_', '-')}.svg"
            path.write_text(draw())
            print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes", flush=True)
