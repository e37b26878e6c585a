"""The runner is built once for each key, whole or not at all."""

from __future__ import annotations

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest
from etdev_cpp import build

from etdev.errors import RunError

pytestmark = pytest.mark.usefixtures("compiles")


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setattr(build, "user_cache_path", lambda *_, **__: tmp_path)
    return tmp_path / "runners"


def test_two_builds_at_a_time_give_one_program(cache, monkeypatch):
    # The runner's own source takes ten seconds to compile, and test_runner.py runs that.
    texts = {**build.sources(), "runner.cpp": "int main() {}"}
    monkeypatch.setattr(build, "sources", lambda: texts)
    with ThreadPoolExecutor(2) as pool:
        first, second = pool.map(lambda _: build.runner(("-O0",)), range(2))
    assert first == second
    assert list(cache.iterdir()) == [first]
    assert subprocess.run([first], stdin=subprocess.DEVNULL, timeout=60).returncode == 0
    before = first.stat().st_mtime_ns
    assert build.runner(("-O0",)) == first
    assert first.stat().st_mtime_ns == before


def test_the_key_has_flags_compiler_and_sources(cache, monkeypatch):
    keys = []

    def compiled(compiler, mains, program, wheel, flags):
        program.write_bytes(b"")

    monkeypatch.setattr(build, "compile_program", compiled)
    keys.append(build.runner())
    keys.append(build.runner(("-O0",)))
    texts = build.sources()
    monkeypatch.setattr(build, "sources", lambda: {**texts, "runner.cpp": "int main() {}"})
    keys.append(build.runner())
    monkeypatch.setenv("CXX", f"{sys.executable} -X dev")
    keys.append(build.runner())
    assert len(set(keys)) == 4
    assert build.runner() == keys[3]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("no-such-compiler", "cpp: no C++ compiler is installed; install g++ or clang++"),
        ("false", "cpp: false --version ended with exit code 1; "),
        (
            f"{sys.executable} -u",
            f"cpp: {sys.executable} -u can't build the C++ runner: ",
        ),
    ],
)
def test_a_compiler_that_does_not_work_is_named(cache, monkeypatch, command, message):
    monkeypatch.setenv("CXX", command)
    with pytest.raises(RunError) as caught:
        build.runner()
    assert str(caught.value).startswith(message)
    assert not cache.exists() or list(cache.iterdir()) == []


def test_a_cache_folder_that_can_not_be_written_is_named(monkeypatch, tmp_path):
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(build, "user_cache_path", lambda *_, **__: tmp_path / "file")
    with pytest.raises(RunError) as caught:
        build.runner()
    assert caught.value.cure == "make that folder writable, and room on its disk"
