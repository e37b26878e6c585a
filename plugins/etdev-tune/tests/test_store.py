"""What was measured is found again under its own key, and nothing else is."""

import json

import pytest
from attrs import evolve
from etdev_tune.exchange import Failure, Result
from etdev_tune.store import Store
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from etdev import TuneError

KEY = {"program": "ab", "policy": {"threads": 1}, "target": {"cpu": "one"}, "round": 0}
MEASURED = Result(
    times_ns=((3, 4), ()),
    memory_bytes=6,
    error=1e-6,
)
COUNTS = st.integers(1, 2**62)


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "store")


@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    st.builds(
        Result,
        times_ns=st.lists(st.lists(COUNTS).map(tuple), max_size=3).map(tuple),
        error=st.none() | st.floats(0, allow_nan=False),
        memory_bytes=st.none() | COUNTS,
    )
)
def test_a_measurement_comes_back_as_it_was(store, measurement):
    store.save(KEY, measurement)
    assert store.load(KEY) == measurement


def test_a_failure_is_a_finding_too(store):
    store.save(KEY, Failure("hang", "3 s"))
    assert store.load(KEY) == Failure("hang", "3 s")


@pytest.mark.parametrize(
    "other",
    [
        {"program": "cd"},
        {"policy": {"threads": 2}},
        {"target": {"cpu": "another"}},
        {"target": {"cpu": "one", "executorch": "1.5"}},
        {"round": 1},
    ],
)
def test_what_depends_on_something_else_is_another_measurement(store, other):
    store.save(KEY, MEASURED)
    assert store.load(KEY | other) is None


def file_of(store):
    (file,) = store.folder.glob("??/*.json")
    return file


def test_a_torn_file_was_not_measured(store):
    store.save(KEY, MEASURED)
    whole = file_of(store).read_text()
    for length in range(0, len(whole) - 2, 7):
        file_of(store).write_text(whole[:length])
        assert store.load(KEY) is None
    store.save(KEY, MEASURED)
    assert store.load(KEY) == MEASURED


@pytest.mark.parametrize(
    "change",
    [
        {"version": 0},
        {"key": {}},
        {"measurement": {}},
        {"measurement": {"times_ns": 3}},
        {"measurement": {"times_ns": [[-1]], "error": None}},
    ],
)
def test_a_file_of_something_else_was_not_measured(store, change):
    store.save(KEY, MEASURED)
    entry = json.loads(file_of(store).read_text())
    file_of(store).write_text(json.dumps(entry | change))
    assert store.load(KEY) is None


def test_nothing_but_whole_entries_is_left_behind(store, monkeypatch):
    store.save(KEY, MEASURED)

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("etdev_tune.store.os.fsync", full)
    with pytest.raises(TuneError, match="can't be written"):
        store.save(KEY | {"round": 1}, evolve(MEASURED, error=1.0))
    assert [file.name for file in store.folder.rglob("*") if file.is_file()] == [
        file_of(store).name
    ]


def test_a_folder_that_can_not_be_written_is_named(tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(TuneError, match=r"file: .* can't be written"):
        Store(tmp_path / "file").check()


def test_without_a_folder_nothing_is_kept():
    Store(None).save(KEY, MEASURED)
    assert Store(None).load(KEY) is None
