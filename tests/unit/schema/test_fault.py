"""A fault is present until a release is known to be right, also in source builds before it."""

import warnings
from importlib import metadata

import pytest

from etdev.errors import EtdevError, EtdevWarning
from etdev.quirks.table import Table
from etdev.schema import releases
from etdev.schema.fault import Fault
from etdev.schema.releases import Release


@pytest.mark.parametrize(
    ("installed", "since", "fixed", "present"),
    [
        ("1.5.1", "", "", True),
        ("9.9", "", "", True),
        ("1.5.1", "", "executorch 1.6", True),
        ("1.6.0a0+gabc", "", "executorch 1.6", True),
        ("1.6.0a0+gabc", "", "executorch 1.6.0a0", False),
        ("1.6.0", "", "executorch 1.6", False),
        ("1.6.0+cpu", "", "executorch 1.6", False),
        ("1.5.1", "executorch 1.6", "", False),
        ("1.6.0a0+gabc", "executorch 1.6", "", True),
        ("1.6.0", "executorch 1.6", "executorch 1.7", True),
        ("1.5.1", "not-installed 1", "", False),
        ("1.5.1", "", "not-installed 1", True),
    ],
)
def test_a_fault_is_present_until_a_release_is_known_to_be_right(
    pretend, installed, since, fixed, present
):
    pretend(executorch=installed)
    assert Fault(upstream="", since=since, fixed=fixed).is_present == present


@pytest.mark.parametrize("text", ["1.6", "executorch", "executorch<1.6", "executorch next"])
def test_a_release_that_can_not_be_read_is_refused(text):
    with pytest.raises(EtdevError) as caught:
        Release.parse(text)
    assert str(caught.value) == f'{text}: is not a release; write it as "executorch 1.6"'


def test_a_source_build_beyond_the_tried_versions_is_told_once(pretend):
    pretend(executorch="99.0.0a0+gabc", torch="99.1")
    with pytest.warns(EtdevWarning) as told:
        assert [Table([]), Table([])]
    (warning,) = told
    tried = {need.name: need.specifier for need in map(releases.Requirement, requires())}
    assert str(warning.message) == (
        f"etdev: was never tried with executorch 99.0.0a0+gabc (tried: {tried['executorch']}) and "
        f"torch 99.1 (tried: {tried['torch']}), and assumes all known faults there; verify what it "
        "lowers, or install a tried version"
    )


def requires():
    return [need for need in metadata.requires("etdev") if need.startswith(("executorch", "torch"))]


def test_nothing_is_said_of_the_versions_here(pretend):
    pretend()
    with warnings.catch_warnings():
        warnings.simplefilter("error", EtdevWarning)
        Table([])
