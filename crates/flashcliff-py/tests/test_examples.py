"""The programs in ``examples`` run and do what they say."""

import importlib.util
from pathlib import Path

EXAMPLES = Path(__file__).parents[1] / "examples"


def load(name):
    spec = importlib.util.spec_from_file_location(name, EXAMPLES / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_motor(capsys):
    assert load("motor").main() < 2e-4
    printed = capsys.readouterr().out
    assert "angle 2.00" in printed and "shift [1.0, -2.0, 0.5]" in printed


def test_transformer(capsys):
    error, plain, off = load("transformer").main()
    assert error < 0.01 * plain and off < 1e-4
    assert "moved away" in capsys.readouterr().out


def test_all_examples_are_run():
    assert sorted(path.stem for path in EXAMPLES.glob("*.py")) == ["motor", "transformer"]
