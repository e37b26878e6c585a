"""Nothing of the user's is overwritten, and each file is written whole or not at all.

The folder that can't be written is a file, which stops root too. The full disk is a fake at the one
place where etdev opens what it writes: only the file in question finds no room. The real one, a
limit of the process on what it may write, is used where that is the first file.
"""

from __future__ import annotations

import errno
import io
import os
import resource
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
import pytest
from support.shell import MLP, error_of, fails, invoke, succeeds
from support.toys.runtime import WRITES_TRACES
from support.toys.target import Scripted

from etdev import files as etdev_files
from etdev.cli.group import loaded
from etdev.cli.main import main
from etdev.cli.outputs import Output
from etdev.errors import EtdevError
from etdev.registry import extensions

LOWER = f"lower {MLP} --plugin cpu --no-cache"
TUNE = f"tune {MLP} --plugin cpu --budget 0.01s"
PATH = "choose another path"
# Command, with the place of its files; the file that can't be written; the cure.
WRITES = {
    "lower -o": (f"{LOWER} -o {{}}/net.pte", "net.pte", PATH),
    "lower --lock": (f"{LOWER} -o net.pte --lock {{}}/net.lock", "net.lock", PATH),
    "lower --html": (f"{LOWER} -o net.pte --html {{}}/net.html", "net.html", PATH),
    "plan --html": (f"plan {MLP} --html {{}}/net.html", "net.html", PATH),
    "plan --view": (f"plan {MLP} --view node-data={{}}/nodes", "reason.json", PATH),
    "run --html": ("run good.pte --profile --html {}/net.html", "net.html", PATH),
    "run --view": ("run good.pte --profile --view node-data={}/nodes", "time.json", PATH),
    "inspect --html": ("inspect good.pte --html {}/net.html", "net.html", PATH),
    "size --operators": ("size good.pte --operators {}/net.yaml", "net.yaml", PATH),
    "tune program": (f"{TUNE} -o {{}}/net.pte --no-store", "net.pte", PATH),
    "tune registry": (f"{TUNE} -o {{}}/net.pte --no-store", "net.registry.toml", PATH),
    "tune lock": (f"{TUNE} -o {{}}/net.pte --no-store", "net.lock", PATH),
    "tune report": (f"{TUNE} -o {{}}/net.pte --no-store", "net.tuning.json", PATH),
    "tune store": (f"{TUNE} -o net.pte --store {{}}/kept", "", "name another with --store"),
}
NEW = {kind: f"new {kind} npu --into {{}}/deep/folder" for kind in ("plugin", "backend")}
# Beginnings of files that etdev may replace.
OLD = {
    ".pte": b"\0\0\0\0ET12 old",
    ".ptd": b"\0\0\0\0FT01 old",
    ".html": b"<title>net \xc2\xb7 etdev</title>",
    ".json": b'{"schema": "etdev.tuning"}',
    ".lock": b'{"lock": 1}',
    ".toml": b"# Written by etdev tune: cpu",
    ".yaml": b"operators: {}",
}


class _Full(io.FileIO):
    """A file on a full disk."""

    def write(self, data: Any) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@contextmanager
def no_room(name: str) -> Iterator[None]:
    """A disk without room for files of a name; hidden, it stands in the name of the folder or file.

    Args:
        name: The name; "" for the files of the store.
    """

    def opened(path: Path, mode: str) -> Any:
        is_full = path.name.startswith(f".{name}.") or (not name and "kept" in path.parts)
        return io.BufferedWriter(_Full(path, mode)) if is_full else open(path, mode)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(etdev_files, "open", opened, raising=False)
        yield


@contextmanager
def no_room_at_all() -> Iterator[None]:
    """A full disk; Python ignores the signal that Linux sends instead of an error."""
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def fails_and_leaves_all_as_it_was(words: str, folder: Path) -> str:
    """The line that a command fails with."""
    before, scratch = content(folder), content(Path(tempfile.gettempdir()))
    done = invoke(words)
    assert (done.exit_code, done.stdout) == (1, ""), done.output
    assert content(folder) == before
    assert content(Path(tempfile.gettempdir())) == scratch
    return error_of(done.stderr)


def content(folder: Path) -> dict[str, bytes]:
    """Files of a folder; empty folders of the store may stay."""
    paths = {str(path.relative_to(folder)): path for path in folder.rglob("*")}
    files = {name: path.read_bytes() for name, path in paths.items() if path.is_file()}
    folders = {name: b"" for name in paths if name not in files and "kept" not in name}
    return {**files, **folders}


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    path = tmp_path_factory.mktemp("good") / "good.pte"
    succeeds(f"{LOWER} --with-ledger -o", path)
    return path.read_bytes()


@pytest.fixture(autouse=True)
def desk(tmp_path, good, monkeypatch, tmp_path_factory):
    """A .pte, a file in the place of a folder, old files, and temporary files of this test only."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path_factory.mktemp("temporary")))
    monkeypatch.setattr("etdev_tune.tune.open_runner", lambda *_: Scripted(lambda _: 1))
    (tmp_path / "good.pte").write_bytes(good)
    (tmp_path / "file").write_text("a file")
    (tmp_path / "place").mkdir()
    for name in {name for _, name, _ in WRITES.values() if name}:
        for place in (tmp_path, tmp_path / "place"):
            (place / name).write_bytes(OLD[Path(name).suffix])
    return tmp_path


@pytest.mark.parametrize("case", WRITES)
def test_a_folder_that_cannot_be_written_is_named_and_nothing_changes(case, desk):
    words, _, cure = WRITES[case]
    line = fails_and_leaves_all_as_it_was(words.format("file"), desk)
    assert line.startswith("file/")
    assert line.endswith((cure, "create it first"))


@pytest.mark.slice(
    "lower -o",
    "lower --lock",
    "plan --view",
    "run --html",
    "size --operators",
    "tune registry",
    "tune store",
)
@pytest.mark.parametrize("case", WRITES)
def test_a_full_disk_is_named_and_nothing_changes(case, desk):
    words, name, cure = WRITES[case]
    with no_room(name):
        line = fails_and_leaves_all_as_it_was(words.format("place"), desk)
    if words.startswith("run") and not WRITES_TRACES:
        assert line.startswith("good.pte: the runtime writes no trace; use ExecuTorch 1.5 or later")
        return
    place = "place/nodes" if "nodes" in words else "place"
    who = f"{place}/{name}" if name else "place/kept"
    assert line.startswith(f"{who}: ")
    assert line.endswith(f"can't be written (No space left on device); {cure}")


@pytest.mark.parametrize("kind", NEW)
@pytest.mark.parametrize("place", ["file", "place"])
def test_a_project_is_made_whole_or_not_at_all(kind, place, desk):
    if place == "file":
        line = fails_and_leaves_all_as_it_was(NEW[kind].format(place), desk)
    else:
        with no_room_at_all():
            line = fails_and_leaves_all_as_it_was(NEW[kind].format(place), desk)
    assert line.startswith(f"{place}/deep/folder/")
    assert line.endswith("choose a folder that can be written with --into DIR")


@pytest.mark.parametrize("place", ["file", "place"])
def test_a_cache_that_cannot_be_written_is_a_warning(place, desk):
    words = f"lower {MLP} --plugin cpu -o other.pte --cache {place}/kept"
    with no_room(""):
        done = invoke(words)
    assert done.exit_code == 0
    assert f"warning: compile cache: {place}/kept: the cache folder can't be written" in done.stderr
    assert "--cache" in done.stderr
    assert not [path for path in desk.rglob("kept/**/*") if path.is_file()]
    assert (desk / "other.pte").is_file()


@pytest.mark.parametrize("words", ["run good.pte --profile", f"{TUNE} -o other.pte --no-store"])
def test_no_room_for_temporary_files_is_named_with_the_cure(words, desk):
    with no_room_at_all():
        line = fails_and_leaves_all_as_it_was(words, desk)
    assert line.startswith(tempfile.gettempdir())
    assert line.endswith("make room, or set TMPDIR")


def test_a_folder_in_the_place_of_a_file_leaves_all_the_others(desk):
    (desk / "place/net.lock").unlink()
    (desk / "place/net.lock").mkdir()
    line = fails_and_leaves_all_as_it_was(f"{TUNE} -o place/net.pte --no-store", desk)
    assert line == "place/net.lock: is a folder; choose another path"


# The files of the user


def _found(group: Any = main, above: str = "") -> Iterator[tuple[str, click.Command]]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if isinstance(command, click.Group):
            yield from _found(command, f"{above}{name} ")
        else:
            yield f"{above}{name}", command


COMMANDS = dict(_found())
COMMANDS |= {
    f"new {kind}": loaded(extensions.NEW, kind) for kind in extensions.candidates(extensions.NEW)
}
# Without these, `run` refuses --html, and `tune` takes minutes.
ALSO = {"run": ["--profile"], "tune": ["--budget", "0.01s"]}
MINE = [f"mine{suffix}" for suffix in OLD]


def texts(command):
    """The arguments and options of a command that a path may be given to."""
    kinds = (click.Path, type(click.STRING))
    return [p for p in command.params if isinstance(p.type, kinds) and not getattr(p, "is_flag", 0)]


def words_of(name, tested, value):
    """A command with a value for one of its parameters, and for those that it can't do without."""
    words = [*name.split(), *ALSO.get(name, ())]
    for parameter in COMMANDS[name].params:
        given = "good.pte"
        if parameter is tested:
            given = value
        elif parameter.name == "source":
            given = "net.py:model"
        elif parameter.name == "output":
            given = "new.pte"
        elif not parameter.required:
            continue
        elif isinstance(parameter.type, click.Choice):
            given = parameter.type.choices[0]
        words += [given] if isinstance(parameter, click.Argument) else [parameter.opts[0], given]
    return words


@pytest.fixture
def mine(desk):
    """Files of the user, one for each suffix that etdev writes, and a folder of them."""
    (desk / "net.py").write_text("from support.models.nets import mlp as model")
    (desk / "folder").mkdir()
    for name in (*MINE, "folder/owner.json", "folder/time.json"):
        (desk / name).write_text("# My notes on etdev.")
    return desk


def begun(*_, **__):
    raise EtdevError("work", "has begun", "too late")


@pytest.mark.parametrize("whole", [False, pytest.param(True, marks=pytest.mark.suite)])
@pytest.mark.parametrize("name", COMMANDS)
def test_no_option_overwrites_a_file_of_the_user(name, whole, mine, monkeypatch):
    monkeypatch.setenv("ETDEV_MEASUREMENTS", str(mine / "kept"))
    if not whole:
        monkeypatch.setattr("etdev.cli.progress.loading", begun)
        monkeypatch.setattr("etdev.runtime.child.Child.start", begun)
    before = content(mine)
    for parameter in texts(COMMANDS[name]):
        writes = isinstance(parameter.type, Output) or parameter.name == "view"
        values = ["net.py", "good.pte", "folder", *(MINE if writes else [])]
        if parameter.name == "output":
            # Another .pte is what it replaces.
            values.remove("good.pte")
        if parameter.name == "view":
            values = [
                f"{view}={v}" for view in extensions.candidates(extensions.VIEWS) for v in values
            ]
        for value in values:
            words = words_of(name, parameter, value)
            done = invoke("", *words)
            now = content(mine)
            assert [file for file in before if now.get(file) != before[file]] == [], words
            if writes:
                assert done.exit_code == 1, words
                assert error_of(done.stderr).startswith(value.rpartition("=")[2]), words


def test_a_file_that_etdev_did_not_write_is_replaced_by_force(mine):
    line = fails("inspect good.pte --html mine.html")
    what = "is there already, and etdev did not write it"
    assert line == f"mine.html: {what}; choose another path, or replace it with --force"
    succeeds("inspect good.pte --html mine.html --force")
    assert "etdev</title>" in (mine / "mine.html").read_text()


def test_files_beside_the_output_are_not_replaced_either(mine):
    for name in ("mine.registry.toml", "mine.lock", "mine.tuning.json"):
        (mine / "mine.pte").unlink(missing_ok=True)
        (mine / name).write_text("# Mine.")
        assert fails(f"{TUNE} -o mine.pte").startswith(f"{name}: is there already, ")
        (mine / name).unlink()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            f"{TUNE} --registry net.registry.toml -o net.pte",
            "net.registry.toml: is named by -o and by --registry",
        ),
        (
            "inspect good.pte --html net.html --view node-data=./net.html",
            "net.html: is named by view node-data and by view html",
        ),
        (
            "size good.pte --plan link.yaml --operators net.yaml",
            "net.yaml: is named by --operators and by --plan",
        ),
    ],
)
def test_an_output_that_the_command_names_twice_is_refused(words, line, desk):
    (desk / "link.yaml").symlink_to("net.yaml")
    assert fails(words) == f"{line}, and would be overwritten; choose another path"


@pytest.mark.parametrize(
    "words",
    [
        f"{LOWER} -o again.pte --lock again.lock --html again.html --view node-data=again",
        "size good.pte --operators again.yaml",
        f"{TUNE} -o again.pte --no-store",
    ],
)
def test_a_command_replaces_its_own_files(words, desk):
    succeeds(words)
    first = content(desk)
    succeeds(words)
    assert content(desk).keys() == first.keys()
