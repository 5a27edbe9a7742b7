"""The table of misuse: each row is a clear exception of the right type, or a right result."""

import re
import warnings

import misuse_arrays
import misuse_atoms
import misuse_compat
import misuse_dispatcher
import misuse_gradients
import misuse_modules
import misuse_options
import misuse_remedies
import misuse_room
import misuse_rotors
import misuse_tensors
import misuse_transformers
import pytest
import torch

from flashcliff import CaptureError
from flashcliff import functional as F

TABLES = (
    misuse_arrays,
    misuse_atoms,
    misuse_compat,
    misuse_dispatcher,
    misuse_gradients,
    misuse_modules,
    misuse_options,
    misuse_remedies,
    misuse_room,
    misuse_rotors,
    misuse_tensors,
    misuse_transformers,
)
ROWS = [row for table in TABLES for row in table.ROWS]

NOT_OURS = re.compile("internal (error|assert)|please (file|report)|panicked|segmentation", re.I)
"""Phrases that no message may have."""


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.what)
def test_row(row):
    if row.error is None:
        assert row.says(row.call())
        return
    with pytest.raises(row.error) as caught:
        row.call()
    assert type(caught.value) is row.error
    message = str(caught.value)
    assert re.search(row.says, message, re.S), message
    assert not NOT_OURS.search(message), message


def test_the_table():
    names = [row.what for row in ROWS]
    assert len(names) == len(set(names)) >= 350


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("row", misuse_remedies.ROWS, ids=lambda row: row.what)
def test_common_mistakes_say_three_things(row):
    """What was expected, what came, and, unless the expectation lists all choices, what to do."""
    with pytest.raises(row.error) as caught:
        row.call()
    message = str(caught.value)
    assert misuse_remedies.EXPECTED.search(message), message
    if row.error is not CaptureError:
        assert misuse_remedies.CAME.search(message), message
    has_choices = re.search("one of|at least|two positive|has no graph", message)
    assert has_choices or re.search("; |use ", message), message


@pytest.mark.filterwarnings("ignore")
def test_a_hundred_mistakes_say_three_things():
    """Rows of all tables: what was expected and what came, and, in a hundred of them, advice beside the expectation."""
    advice = re.compile("; |use |one of|at least|two positive")
    expect = came = advise = 0
    for row in ROWS:
        if row.error is None:
            continue
        with pytest.raises(row.error) as caught:
            row.call()
        message = str(caught.value)
        if misuse_remedies.EXPECTED.search(message):
            expect += 1
            if re.search("got|found|unknown|is followed by|cannot be|was changed", message):
                came += 1
                advise += advice.search(message) is not None
    assert expect >= 310 and came >= 300 and advise >= 100, (expect, came, advise)


# A tensor of `sgp_norm`, what was done to it, and what the messages say to do, one after the other.
REMEDIES = [
    ("x", lambda x: x.movedim(0, -1), ["x = x.movedim(-1, 0)"]),
    ("y", lambda y: y.movedim(0, -1), ["y = y.movedim(-1, 0)"]),
    ("y", lambda y: y[:, :1], ["y = y.expand(-1, 3, -1)"]),
    ("weight", lambda weight: weight.t(), ["weight = weight.t()"]),
    ("x", lambda x: x.half(), ["x = x.float()"]),
    ("y", lambda y: y.bfloat16(), ["y = y.float()"]),
    ("y", lambda y: y.double(), ["y = y.to(torch.float32)"]),
    (
        "x",
        lambda x: x.double(),
        ["y = y.to(torch.float64)", "weight = weight.to(torch.float64)"],
    ),
    ("weight", lambda weight: weight.long(), ["weight = weight.float()"]),
    ("y", lambda y: y > 0, ["y = y.float()"]),
    ("x", lambda x: x.numpy(), ["x = torch.from_dlpack(x)"]),
    ("weight", lambda weight: weight.tolist(), ["weight = torch.tensor(weight)"]),
]


@pytest.mark.parametrize(("name", "spoil", "remedies"), REMEDIES)
def test_what_messages_say_helps(name, spoil, remedies):
    """A call that is changed as its messages say runs."""
    tensors = {"x": torch.randn(8, 3, 4), "y": torch.randn(8, 3, 4), "weight": torch.randn(4, 20)}
    tensors[name] = spoil(tensors[name])
    for remedy in remedies:
        with pytest.raises((TypeError, ValueError)) as caught:
            F.sgp_norm(**tensors, algebra=(3, 0, 0))
        changed, code = remedy.split(" = ")
        assert f"call `{code}`" in str(caught.value)
        tensors[changed] = eval(code, {"torch": torch, **tensors})
    assert F.sgp_norm(**tensors, algebra=(3, 0, 0)).shape == (8, 3, 4)


def test_the_runner_fails_where_it_must():
    """Rows with a mistake do not pass."""
    from misuse import refused, right

    raising = lambda: int("x")  # noqa: E731
    wrong = [
        refused("nothing is raised", lambda: 1, ValueError, ""),
        refused("another type", raising, TypeError, ""),
        refused("a type above", raising, Exception, ""),
        refused("another message", raising, ValueError, "something else"),
        right("a wrong result", lambda: 1, lambda result: result == 2),
    ]
    for row in wrong:
        with (
            warnings.catch_warnings(),
            pytest.raises((AssertionError, ValueError, pytest.fail.Exception)),
        ):
            test_row(row)
