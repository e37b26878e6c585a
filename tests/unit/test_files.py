"""Writing files: complete or not at all."""

from __future__ import annotations

import errno
import itertools
import os
import random
import signal
import time
from pathlib import Path

import pytest

from etdev.errors import ArtifactError
from etdev.files import check_writable, forced, publish, write_atomically

# The beginning of a .pte, which may be replaced.
OLD = b"\0\0\0\0ET12"


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "net.pte"
    write_atomically(path, lambda file: file.write(b"whole"))
    assert path.read_bytes() == b"whole"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("error", [ValueError("no"), KeyboardInterrupt()], ids=["error", "ctrl-c"])
def test_a_failed_write_leaves_nothing_behind(tmp_path, error):
    def fail(file):
        file.write(b"half")
        raise error

    with pytest.raises(type(error)):
        write_atomically(tmp_path / "net.pte", fail)
    assert list(tmp_path.iterdir()) == []


def test_a_failed_write_keeps_the_old_file(tmp_path):
    path = tmp_path / "net.pte"
    path.write_bytes(OLD)

    def fail(file):
        file.write(b"half")
        raise ValueError

    with pytest.raises(ValueError):  # noqa: PT011
        write_atomically(path, fail)
    assert path.read_bytes() == OLD
    assert list(tmp_path.iterdir()) == [path]


def test_the_old_file_is_replaced_only_at_the_end(tmp_path):
    path = tmp_path / "net.pte"
    path.write_bytes(OLD)
    seen = []

    def write(file):
        file.write(b"new")
        file.flush()
        seen.append(path.read_bytes())

    write_atomically(path, write)
    assert seen == [OLD]
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize(("mask", "mode"), [(0o022, 0o644), (0o077, 0o600), (0o002, 0o664)])
def test_the_mode_follows_the_umask(tmp_path, mask, mode):
    before = os.umask(mask)
    try:
        write_atomically(tmp_path / "net.pte", lambda file: file.write(b"x"))
        assert os.umask(mask) == mask
    finally:
        os.umask(before)
    assert (tmp_path / "net.pte").stat().st_mode & 0o777 == mode


def test_a_missing_folder_is_an_artifact_error(tmp_path):
    path = tmp_path / "nowhere" / "net.pte"
    with pytest.raises(ArtifactError) as caught:
        write_atomically(path, lambda file: file.write(b"x"))
    assert str(caught.value) == (
        f"{path}: can't be written (No such file or directory); choose another path"
    )


def test_a_folder_of_that_name_is_an_artifact_error_and_stays(tmp_path):
    path = tmp_path / "net.pte"
    path.mkdir()
    with pytest.raises(ArtifactError) as caught:
        write_atomically(path, lambda file: file.write(b"x"))
    assert str(caught.value) == f"{path}: is a folder; choose another path"
    assert list(tmp_path.iterdir()) == [path]


def _word(number: int) -> bytes:
    return b"%04dET%02d" % divmod(number, 100)


def _writes_forever(path: Path) -> None:
    for number in itertools.count(1):
        parts = [_word(number)] * 4096
        write_atomically(path, lambda file, parts=parts: file.writelines(parts))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="kills a child process")
def test_a_process_that_is_killed_leaves_a_whole_file_and_nothing_stale(tmp_path):
    path = tmp_path / "net.pte"
    mine = tmp_path / ".net.pte.of-mine"
    mine.write_bytes(b"")
    write_atomically(path, lambda file: file.write(_word(0) * 4096))
    stale = 0
    # On a busy machine it takes more than 20 to meet a child that writes.
    for point in range(200):
        child = os.fork()
        if not child:
            _writes_forever(path)
        time.sleep(0.003 * (point + 1) + random.random() / 500)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        words = path.read_bytes()
        assert words == words[:8] * 4096
        stale += len(list(tmp_path.iterdir())) - 2
        if stale and point >= 19:
            break
    assert stale
    for old in set(tmp_path.iterdir()) - {mine, path}:
        os.utime(old, (0, 0))
    write_atomically(path, lambda file: file.write(b"whole"))
    assert sorted(tmp_path.iterdir()) == [mine, path]


def test_the_file_of_a_process_that_runs_is_left_alone(tmp_path):
    path = tmp_path / "net.pte"

    def write(file):
        write_atomically(path, lambda inner: inner.write(b"inner"))
        file.write(b"outer")

    write_atomically(path, write)
    assert path.read_bytes() == b"outer"


# Files of the user


def put(path: Path, content: bytes) -> None:
    write_atomically(path, lambda file: file.write(content))


def move(path: Path, content: bytes) -> None:
    hidden = path.parent / "hidden" / path.name
    hidden.parent.mkdir()
    hidden.write_bytes(content)
    publish([hidden], path)


WAYS = [put, move, lambda path, _: check_writable(path)]


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("name", ["net.pte", "net.html", "net.lock", "net.json", "net.txt", "net"])
def test_a_file_that_etdev_did_not_write_stays_unless_forced(write, name, tmp_path):
    path = tmp_path / name
    path.write_text("My notes on etdev.")
    with pytest.raises(ArtifactError) as caught:
        write(path, b"new")
    assert str(caught.value) == (
        f"{path}: is there already, and etdev did not write it; "
        "choose another path, or replace it with --force"
    )
    assert path.read_text() == "My notes on etdev."
    with forced(True):
        put(path, b"new")
    assert path.read_bytes() == b"new"


@pytest.mark.parametrize("write", WAYS)
@pytest.mark.parametrize("force", [True, False])
def test_a_file_that_is_read_only_stays(write, force, tmp_path):
    path = tmp_path / "net.pte"
    path.write_bytes(OLD)
    path.chmod(0o444)
    with pytest.raises(ArtifactError) as caught, forced(force):
        write(path, b"new")
    what = "can't be written (it is read-only); choose another path"
    assert str(caught.value) == f"{path}: {what}"
    assert path.read_bytes() == OLD


@pytest.mark.parametrize("write", [put, move])
@pytest.mark.parametrize("old", [OLD, b"", None])
@pytest.mark.parametrize("other_disk", [False, True])
def test_a_link_stays_and_its_file_is_replaced(write, old, other_disk, tmp_path, monkeypatch):
    (tmp_path / "versions").mkdir()
    path, target = tmp_path / "latest.pte", tmp_path / "versions/1.pte"
    path.symlink_to("versions/1.pte")
    if old is not None:
        target.write_bytes(old)
    replace = os.replace

    def within_a_disk(source, moved):
        if Path(source).parent != Path(moved).parent:
            raise OSError(errno.EXDEV, "Invalid cross-device link")
        replace(source, moved)

    if other_disk:
        monkeypatch.setattr(os, "replace", within_a_disk)
    write(path, b"new")
    assert (path.is_symlink(), target.read_bytes()) == (True, b"new")
    assert list((tmp_path / "versions").iterdir()) == [target]


def test_a_link_to_a_file_of_the_user_is_refused_by_its_name(tmp_path):
    (tmp_path / "net.py").write_text("pass")
    path = tmp_path / "net.html"
    path.symlink_to("net.py")
    with pytest.raises(ArtifactError, match=r"net\.html: is there already"):
        check_writable(path, ".html")


def test_a_suffix_is_asked_for(tmp_path):
    with pytest.raises(ArtifactError) as caught:
        check_writable(tmp_path / "net.py", ".html")
    assert str(caught.value) == f"{tmp_path}/net.py: does not end in .html; name it net.html"
