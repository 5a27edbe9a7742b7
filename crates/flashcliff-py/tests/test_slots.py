"""Entries of dictionaries that the extension looks at all at once."""

import gc
import weakref
from collections import OrderedDict

import pytest

from flashcliff import _core


class Thing:
    pass


def made():
    owner, other, thing = {"a": 1.5, "b": None}, OrderedDict(), Thing()
    slots = _core.Slots([owner, owner, owner], ["a", "b", "c"], [other], [thing])
    return owner, other, thing, slots


CHANGES = {
    "another object that is equal": lambda owner, other, thing: owner.update(a=float("1.5")),
    "an object in the place of none": lambda owner, other, thing: owner.update(b=0),
    "an entry that was not there": lambda owner, other, thing: owner.update(c=None),
    "an entry that is gone": lambda owner, other, thing: owner.pop("b"),
    "a size": lambda owner, other, thing: other.update(x=1),
    "a class": lambda owner, other, thing: setattr(thing, "__class__", type("Own", (Thing,), {})),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changes(change):
    *parts, slots = made()
    assert slots.are_same()
    CHANGES[change](*parts)
    assert not slots.are_same()


def test_what_is_not_asked_may_change():
    owner, _, thing, slots = made()
    owner["d"] = thing.x = 1
    assert slots.are_same()


def test_values_are_those_of_now():
    owner, *_, slots = made()
    assert slots.values() == [1.5, None, None]
    owner.update(b="b", c=[])
    assert slots.values() == [1.5, "b", []] and slots.values()[2] is owner["c"]


def test_each_dictionary_has_a_name():
    with pytest.raises(ValueError, match="a name for each of 2 dictionaries, got 1"):
        _core.Slots([{}, {}], ["a"])


def test_cycles_are_found():
    thing = Thing()
    thing.slots = _core.Slots([thing.__dict__], ["slots"], [], [thing])
    gone = weakref.ref(thing)
    del thing
    gc.collect()
    assert gone() is None
