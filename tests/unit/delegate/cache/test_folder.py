"""The folder: entries appear whole or not at all, whoever writes and whatever is killed."""

import os
import random
import signal
import subprocess
import sys
import time

import pytest

from etdev.delegate.cache.folder import Folder
from etdev.errors import CacheError

KEYS = [f"{number:064x}" for number in range(0, 16 * 7, 7)]


def entry(key: str, size: int = 100) -> bytes:
    return key.encode() * size


def aged(folder: Folder, *ages: tuple[str, float]) -> None:
    for key, age in ages:
        path = folder.path / key[:2] / f"{key}.entry"
        os.utime(path, (time.time() - age, time.time() - age))


def test_what_was_stored_is_loaded(tmp_path):
    folder = Folder(tmp_path / "new" / "cache", 1 << 20)
    assert folder.load(KEYS[0]) is None
    folder.store(KEYS[0], b"data")
    assert folder.load(KEYS[0]) == b"data"
    assert [stored.key for stored in folder.stored()] == [KEYS[0]]


def test_what_was_used_longest_ago_goes_first(tmp_path):
    folder = Folder(tmp_path, 3 * len(entry(KEYS[0])))
    for key in KEYS[:4]:
        folder.store(key, entry(key))
    aged(folder, *((key, 100 - number) for number, key in enumerate(KEYS[:4])))
    folder.load(KEYS[0])
    folder.trim()
    assert {stored.key for stored in folder.stored()} == {KEYS[0], KEYS[3]}


def test_files_of_killed_processes_go_and_those_of_others_stay(tmp_path):
    folder = Folder(tmp_path, 1 << 20)
    folder.store(KEYS[0], entry(KEYS[0]))
    place = tmp_path / KEYS[0][:2]
    hidden, foreign = (place / name for name in (f".{KEYS[1]}.a", "notes.txt"))
    for path in (hidden, foreign):
        path.write_text("x")
    assert folder.clear() == 1
    assert [path.name for path in place.iterdir()] == [foreign.name]


@pytest.mark.parametrize("key", ["", "a", "../" + "0" * 61, "0" * 63 + "g", "0" * 64 + "\n"])
def test_a_key_is_not_a_path(tmp_path, key):
    with pytest.raises(CacheError, match="is not a key"):
        Folder(tmp_path, 1).store(key, b"")


def test_a_full_disk_leaves_nothing(tmp_path, monkeypatch):
    def full(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CacheError, match="No space left on device"):
        Folder(tmp_path, 1).store(KEYS[0], b"data")
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


WRITER = """
import sys
from pathlib import Path
from etdev.delegate.cache.folder import Folder
folder, keys = Folder(Path(sys.argv[1]), 200_000), sys.argv[2:]
print("ready", flush=True)
while True:
    for key in keys:
        data = folder.load(key)
        if data is None:
            folder.store(key, key.encode() * 500)
        elif data != key.encode() * 500:
            sys.exit("wrong")
    folder.trim()
"""


def test_eight_processes_and_random_kills_leave_only_whole_entries(tmp_path):
    folder, chance = Folder(tmp_path, 200_000), random.Random(1)
    command = [sys.executable, "-c", WRITER, str(tmp_path), *KEYS]

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE)

    writers = [start() for _ in range(8)]
    for writer in writers:
        assert writer.stdout.readline() == b"ready\n"
    for number in range(20):
        time.sleep(chance.uniform(0, 0.05))
        victim = writers[number % 8]
        if victim.poll() is None:
            victim.send_signal(signal.SIGKILL)
    for writer in writers:
        writer.kill()
        assert writer.wait() == -signal.SIGKILL, writer.stderr.read()
        writer.stdout.close()
        writer.stderr.close()
    stored = folder.stored()
    assert stored
    for each in stored:
        assert each.path.read_bytes() == entry(each.key, 500)
    folder.store(KEYS[0], entry(KEYS[0]))
    assert folder.load(KEYS[0]) == entry(KEYS[0])
    folder.clear()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_what_is_not_a_file_is_not_an_entry(tmp_path):
    """To read a pipe takes forever."""
    folder = Folder(tmp_path, 1 << 20)
    for key, make in (("a" * 64, os.mkfifo), ("b" * 64, os.mkdir)):
        path = tmp_path / key[:2] / f"{key}.entry"
        path.parent.mkdir()
        make(path)
        assert folder.load(key) is None
    assert folder.stored() == []
