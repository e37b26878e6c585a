"""What is written as a registry file is read as the same registry."""

from pathlib import Path

import pytest
from attrs import evolve
from etdev_tune.toml_writer import toml_of
from hypothesis import given, settings
from hypothesis import strategies as st

from etdev import Budget, Device, Limits, Pin, Registry, RegistryError
from etdev.registry.registry import PluginEntry, parse

TEXT = st.text(st.characters(exclude_categories=["Cs"]), min_size=1)
NAMES = st.from_regex(r"[A-Za-z0-9_]([A-Za-z0-9_-]{0,6}[A-Za-z0-9_])?", fullmatch=True)
GLOBS = TEXT.filter(lambda text: "[" not in text)
SCALARS = st.booleans() | st.integers(-(2**63), 2**63 - 1) | TEXT
SCALARS |= st.floats(allow_nan=False, allow_infinity=False)
VALUES = SCALARS | st.lists(SCALARS) | st.dictionaries(TEXT, SCALARS)
COUNTS = st.none() | st.integers(1, 99)
ENTRIES = st.builds(
    PluginEntry,
    name=NAMES,
    optional=st.booleans(),
    devices=st.dictionaries(NAMES, st.builds(Device, st.just("cuda"), st.integers(0, 9))),
    options=st.dictionaries(TEXT, VALUES, max_size=3),
    limits=st.builds(Limits, min_nodes=COUNTS, max_partitions=COUNTS),
)
REGISTRIES = st.builds(
    Registry,
    entries=st.lists(ENTRIES, max_size=3, unique_by=lambda entry: entry.name).map(tuple),
    trusted=st.none() | st.lists(TEXT, max_size=2).map(tuple),
    unlisted=st.sampled_from(["first", "last", "ignore"]),
    strict=st.booleans(),
    simplify=st.booleans(),
    pins=st.lists(st.builds(Pin, NAMES, op=GLOBS, module=st.none() | GLOBS), max_size=2).map(tuple),
    budget=st.none() | st.builds(Budget, st.integers(0, 9), st.lists(GLOBS, max_size=2)),
    on_failure=st.sampled_from(["error", "fallback"]),
)


@settings(max_examples=60, deadline=None)
@given(REGISTRIES, st.lists(st.sampled_from(["", "a line", "[x]"]), max_size=2))
def test_a_registry_survives_its_file(registry, comment):
    text = toml_of(registry, comment)
    assert parse(text, Path("x.toml")) == evolve(registry, path=Path("x.toml"))


def test_an_option_that_toml_has_no_word_for_is_refused():
    entry = PluginEntry("cpu", options={"x": object})
    with pytest.raises(RegistryError, match="can't be written as TOML"):
        toml_of(Registry((entry,)))
