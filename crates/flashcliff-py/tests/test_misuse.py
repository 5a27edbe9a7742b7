"""The table of misuse: each row is a clear exception of the right type, or a right result."""

import re
import warnings

import misuse_arrays
import misuse_compat
import misuse_dispatcher
import misuse_gradients
import misuse_modules
import misuse_options
import misuse_tensors
import pytest

TABLES = (
    misuse_arrays,
    misuse_compat,
    misuse_dispatcher,
    misuse_gradients,
    misuse_modules,
    misuse_options,
    misuse_tensors,
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
    assert len(names) == len(set(names)) >= 150


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
