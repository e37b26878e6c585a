"""`etdev cache`, and what `etdev lower` says of the cache."""

import json

import pytest
from support.shell import MLP, error_of, fails, invoke, succeeds


@pytest.fixture
def kept(tmp_path):
    """A cache with the two partitions of the MLP."""
    folder = tmp_path / "kept"
    succeeds("lower --plugin cpu", MLP, "-o", tmp_path / "mlp.pte", "--cache", folder)
    return folder


def lowered(tmp_path, *words):
    return succeeds("lower --plugin cpu", MLP, "-o", tmp_path / "mlp.pte", *words)


def test_lower_says_what_was_compiled_and_what_was_there(kept, tmp_path):
    first = (tmp_path / "mlp.pte").read_bytes()
    assert "partitions: 2 found in the cache\n" in lowered(tmp_path, "--cache", kept)
    assert (tmp_path / "mlp.pte").read_bytes() == first
    assert "partitions: 2 compiled\n" in lowered(tmp_path, "--no-cache")
    assert (tmp_path / "mlp.pte").read_bytes() == first


def test_lower_takes_one_of_the_two_options(tmp_path):
    output = tmp_path / "mlp.pte"
    done = invoke("lower --no-cache --cache x", MLP, "-o", output)
    assert (done.exit_code, output.exists()) == (2, False)
    assert "give --cache or --no-cache, not both" in done.stderr


def test_info_lists_entries(kept):
    assert f"{kept}: 2 entries" in succeeds("cache info --cache", kept)
    data = json.loads(succeeds("cache info --json --cache", kept))
    assert data["folder"] == str(kept)
    assert data["size_bytes"] == sum(path.stat().st_size for path in kept.rglob("*.entry"))
    assert sum(entry["size_bytes"] for entry in data["entries"]) == data["size_bytes"]


def test_clear_removes_entries_and_nothing_else(kept):
    (kept / "notes.txt").write_text("mine")
    assert succeeds("cache clear --cache", kept) == f"{kept}: 2 entries removed\n"
    assert [path for path in kept.rglob("*") if path.is_file()] == [kept / "notes.txt"]
    assert "0 entries" in succeeds("cache info --cache", kept)


def test_a_file_and_a_cache_that_is_off_are_errors(tmp_path):
    (tmp_path / "file").touch()
    assert fails("cache info --cache", tmp_path / "file") == (
        f"{tmp_path / 'file'}: is not a folder; name the cache's folder"
    )
    assert fails("cache info --cache s3://kept") == (
        "s3://kept: is not a folder; name the cache's folder"
    )
    assert fails("cache info") == "cache: is off; name its folder with --cache DIR"
    assert error_of(invoke("cache clear --cache off").stderr).startswith("cache: is off")


def test_a_folder_that_is_not_there_is_refused(here):
    for command in ("info", "clear"):
        error = fails(f"cache {command} --cache", here / "typo")
        assert error == f"{here / 'typo'}: is not a folder; name the cache's folder"
