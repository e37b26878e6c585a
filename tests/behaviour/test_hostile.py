"""Hostile files: each is an EtdevError or a right answer; no crash, no hang, no traceback."""

import io
import json
from contextlib import suppress
from pathlib import Path
from zipfile import ZipFile

import pytest
from blake3 import blake3
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
from hypothesis import given
from hypothesis import strategies as st
from support.hostile import TEXTS, VALUES, altered, as_json, budget, damaged, taken, tells
from support.models import nets
from support.shell import invoke

from etdev import Lowerer
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.entry import CHECKSUM_BYTES, CacheEntry
from etdev.errors import EtdevError
from etdev.locking import Lock
from etdev.pte.embedded_plan import read_ledger
from etdev.pte.instructions import steps
from etdev.pte.ptd import keys_of
from etdev.pte.read import compiled, read
from etdev.registry import parse
from etdev.runtime.check import check
from etdev.runtime.run import run
from etdev.schema.pins import Pin
from etdev.schema.plan import Plan

pytestmark = pytest.mark.fuzz

REGISTRY = """
strict = true
trusted = ["etdev-cpu"]
unlisted = "ignore"
on_failure = "error"

[plugins.cpu]
min_nodes = 2
max_partitions = 7
hook_timeout_s = 1.5
device = { forward = "cuda:1" }
options = { per_op = true, names = ["a", "b"] }

[plugins.npu]
partitioner = "package.module:Class"
optional = true

[[pin]]
op = "aten.add.*"
plugin = "cpu"

[[pin]]
module = "encoder.*"
node = "aten_add_?"
plugin = "portable"

[budget]
nodes = 10

[cache]
folder = "x"
"""


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    """A folder with a .pte, its plan, its lock and the entries of its cache."""
    folder = tmp_path_factory.mktemp("good")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("ETDEV_CACHE", str(folder / "cache"))
        lowerer = Lowerer(["cpu"])
        lowered = lowerer.lower(*nets.mlp())
        lowered.save("net.pte", with_ledger=True)
        Path("plan.json").write_text(lowered.plan.to_json())
        Path("registry.toml").write_text(REGISTRY)
    tensors = {name: DataEntry(number, 1, None) for number, name in enumerate(("a", "weight.1"))}
    payload = DataPayload(buffers=[b"\1" * 64, b"\2" * 32], named_data=tensors)
    (folder / "net.ptd").write_bytes(bytes(FlatTensorSerializer().serialize(payload)))
    return folder


@pytest.fixture(scope="module")
def scratch(tmp_path_factory):
    """A folder to write files into that are read once."""
    return tmp_path_factory.mktemp("scratch")


def head(path):
    """A .pte without its weights, of which every byte decides something."""
    data = path.read_bytes()
    size = int.from_bytes(data[16:24], "little")
    return data[:size], data[size:]


def read_all(path):
    """Everything that etdev reads of a .pte."""
    facts = read(path)
    with suppress(EtdevError):
        compiled(path)
    for method in facts.methods:
        with suppress(EtdevError):
            steps(path, method.name)
    with suppress(EtdevError):
        check(path)
    read_ledger(path)


def as_text(path):
    return path.read_bytes().decode("utf-8", "replace")


# The file that is damaged, and its reader.
READERS = {
    "weights of a .pte": ("net.pte", read_all),
    ".ptd": ("net.ptd", keys_of),
    "plan": ("plan.json", lambda path: Plan.from_json(as_text(path), "plan.json")),
    "registry": ("registry.toml", lambda path: parse(as_text(path), path)),
}


@pytest.mark.parametrize("kind", READERS)
@budget(60)
@given(data=st.data())
def test_a_damaged_file_is_refused_or_read(kind, good, scratch, data):
    name, read = READERS[kind]
    path = scratch / name
    path.write_bytes(data.draw(damaged((good / name).read_bytes())))
    taken(lambda: read(path))


@budget(60)
@given(data=st.data())
def test_a_damaged_pte_is_refused_or_read(good, scratch, data):
    front, rest = head(good / "net.pte")
    path = scratch / "hostile.pte"
    path.write_bytes(data.draw(damaged(front)) + rest)
    taken(lambda: read_all(path))


@budget(3)
@given(data=st.data())
def test_a_damaged_pte_that_is_run_takes_down_another_process_at_most(good, scratch, data):
    front, rest = head(good / "net.pte")
    path = scratch / "hostile.pte"
    path.write_bytes(data.draw(damaged(front, changes=1)) + rest)
    inputs = nets.mlp()[1]
    taken(lambda: run(path, inputs))


def test_a_name_in_a_pte_is_not_obeyed_by_the_terminal(good, scratch):
    content = (good / "net.pte").read_bytes()
    for name in (b"\x1b[2J\x07\x08x", b"[/red]x", b"\xe2\x80\xae\xe2\x80\xaex"):
        assert len(name) == len(b"forward")
        path = scratch / "named.pte"
        path.write_bytes(content.replace(b"forward", name))
        done = invoke("inspect", path)
        assert done.exit_code == 0
        tells(done)
        for words in ("check", "explain", "explain --json", "run"):
            tells(invoke(words, path))


@budget(30)
@given(data=st.data())
def test_an_altered_plan_is_refused_or_told(good, scratch, data):
    path = scratch / "hostile.json"
    plan = json.loads((good / "plan.json").read_text())
    path.write_text(as_json(data.draw(altered(plan))))
    taken(lambda: Plan.from_json(path.read_text(), str(path)))
    for options in ("", "--all", "--json", "--node *", "--op *add*"):
        tells(invoke(f"explain {options}", path))
    tells(invoke("diff", good / "plan.json", path))
    tells(invoke("diff --all", path, good / "plan.json"))


@budget(60)
@given(data=st.data())
def test_an_altered_lock_is_refused_or_compared(scratch, data):
    lock = {
        "lock": 1,
        "setup": {"versions": {"torch": "2"}, "plugins": [{"name": "cpu", "options": {"a": "1"}}]},
        "program": {"forward": [{"partition": "cpu_0", "key": "0" * 64}]},
        "files": {".pte": "0" * 64},
    }
    path = scratch / "hostile.lock"
    path.write_text(as_json(data.draw(altered(lock))))
    made = Lock(lock["setup"], lock["program"], lock["files"])

    def compare():
        Lock.read(path).check(made, path)

    taken(compare)
    taken(lambda: Lock.read(path).check_setup(lock["setup"], path))


@budget(60)
@given(data=st.data())
def test_an_odd_registry_is_refused_or_read(data):
    lines = REGISTRY.splitlines()
    number = data.draw(st.integers(0, len(lines) - 1))
    value = data.draw(st.one_of(VALUES.map(as_json), st.text(max_size=20)))
    lines[number] = lines[number].partition("=")[0] + "= " + value
    text = "\n".join(lines)
    taken(lambda: parse(text, Path("registry.toml")))


@budget(60)
@given(data=st.data())
def test_an_odd_pin_is_refused_or_read(data):
    text = data.draw(
        st.one_of(
            st.text(max_size=30),
            st.sampled_from(
                ["op=aten.*:plugin=cpu", "module=a.b:plugin=", "=:=", "op=[:plugin=cpu"]
            ),
            st.builds("{}={}:plugin={}".format, *[st.sampled_from((*TEXTS, "op", "[a", "**"))] * 3),
        )
    )
    taken(lambda: Pin.parse(text))


@pytest.fixture(scope="module")
def entry(good):
    """The bytes of an entry of the cache."""
    files = (path.read_bytes() for path in sorted((good / "cache").rglob("*.entry")))
    return next(data for data in files if len(data) > 500)


def signed(data):
    """The bytes of an entry with the checksum that they should have."""
    body = data[:-CHECKSUM_BYTES]
    return body + blake3(body).digest()


def read_entry(data):
    return CacheEntry.from_bytes(data, "entry").results(1, "entry", Digests())


@budget(60)
@given(data=st.data())
def test_a_damaged_cache_entry_is_refused_or_read(entry, data):
    content = data.draw(damaged(entry))
    taken(lambda: read_entry(content))
    taken(lambda: read_entry(signed(content)))


@budget(60)
@given(data=st.data())
def test_a_made_up_cache_entry_with_a_right_checksum_is_refused_or_read(entry, data):
    known, file = CacheEntry.from_bytes(entry, "entry"), io.BytesIO()
    head = data.draw(altered([known.key, known.content]))
    with ZipFile(file, "w") as zipped:
        zipped.comment = bytes(CHECKSUM_BYTES)
        for name, content in {"entry.json": as_json(head), **known.blobs}.items():
            zipped.writestr(name, content)
    taken(lambda: read_entry(signed(file.getvalue())))
