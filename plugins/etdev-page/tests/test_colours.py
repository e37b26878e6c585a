"""Colours of the page: contrast as WCAG defines it, and pairs that the colour-blind tell apart."""

from __future__ import annotations

import itertools
import math
import re
from pathlib import Path

import etdev_page
import pytest
from etdev_page.colours import colours_of, contrast, ink_on

# Machado, Oliveira and Fernandes (2009), severity 1: linear RGB as a reader with that sight has it.
SIGHTS = {
    "full": ((1, 0, 0), (0, 1, 0), (0, 0, 1)),
    "protan": ((0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216),
               (-0.003882, -0.048116, 1.051998)),
    "deutan": ((0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413),
               (-0.011820, 0.042940, 0.968881)),
    "tritan": ((1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602),
               (0.004733, 0.691367, 0.303900)),
}  # fmt: skip
# A difference of 2.3 in CIELAB is just noticeable.
APART = 15
OWNERS = colours_of([f"plugin {number}" for number in range(6)])


def linear(colour: str) -> list[float]:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    return [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]


def lab(colour: str, sight: str) -> tuple[float, float, float]:
    seen = [sum(weight * part for weight, part in zip(row, linear(colour), strict=True))
            for row in SIGHTS[sight]]  # fmt: skip
    r, g, b = (min(1, max(0, part)) for part in seen)
    x = (0.4124 * r + 0.3576 * g + 0.1805 * b) / 0.95047
    y = 0.2126 * r + 0.7152 * g + 0.0722 * b
    z = (0.0193 * r + 0.1192 * g + 0.9505 * b) / 1.08883
    fx, fy, fz = (t ** (1 / 3) if t > 0.008856 else 7.787 * t + 16 / 116 for t in (x, y, z))
    return 116 * fy - 16, 500 * (fx - fy), 200 * (fy - fz)


def variable(name: str) -> tuple[str, str]:
    """A colour of the page in the light and in the dark."""
    css = (Path(etdev_page.__file__).parent / "page.css").read_text()
    (found,) = re.findall(rf"--{name}: light-dark\((#\w+), (#\w+)\)", css)
    return found


@pytest.mark.parametrize("sight", SIGHTS)
def test_any_two_owners_can_be_told_apart(sight):
    distances = {
        (one, other): math.dist(lab(OWNERS[one], sight), lab(OWNERS[other], sight))
        for one, other in itertools.combinations(OWNERS, 2)
    }
    assert min(distances.values()) > APART, min(distances, key=distances.get)


def test_portable_nodes_are_not_the_palest():
    (portable,) = set(variable("mark"))
    assert portable == OWNERS["portable"]
    for paper in (*variable("paper"), *variable("raised")):
        assert contrast(portable, paper) >= 3
    assert contrast(portable, "#000000") >= 4.5


@pytest.mark.parametrize("shade", [0, 1], ids=["light", "dark"])
def test_text_and_borders_stand_out(shade):
    ground = [variable(name)[shade] for name in ("paper", "raised", "sunken")]
    for name in ("ink", "quiet", "accent"):
        assert min(contrast(variable(name)[shade], paper) for paper in ground) >= 4.5, name
    for name in ("edge", "copy"):
        assert min(contrast(variable(name)[shade], paper) for paper in ground) >= 3, name
    assert contrast(variable("heat-most")[shade], variable("ink")[shade]) >= 4.5


def test_ink_on_a_colour_can_be_read():
    for colour in OWNERS.values():
        assert contrast(ink_on(colour), colour) >= 4.5
