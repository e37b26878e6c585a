"""Kinds of faults that a backend's compiler may have, and what a model needs to show each."""

from __future__ import annotations

# A kind, with what a model must have for it to occur; empty for any model.
KINDS = {
    "at one size in between": "sizes",
    "above a size": "sizes",
    "at a multiple of 4": "sizes",
    "at size 1": "sizes",
    "when a size shrinks": "sizes",
    "at ties": "argmax",
    "at exact multiples": "division",
    "at zero": "",
    "at negative values": "",
    "at values above 100": "",
    "at integers": "",
    "in one branch": "branches",
    "in one element of 10,000": "map",
    "in the last row": "",
    "in one channel beside a large one": "large",
    "in one output of three": "three",
    "from the third call": "",
    "after a reset": "reset",
    "for one value of an integer input": "integer",
    "by 1e-3 beside a fill of -1e9": "fill",
}
