"""Flatbuffers are measured before they are unpacked: a small file can't become a large one."""

import dataclasses
import enum
import json
import subprocess
import sys
import time
import tracemalloc
import zlib

import flatbuffers
import pytest
from executorch.exir._serialize import _program as serialize
from executorch.exir._serialize.data_serializer import DataEntry, DataPayload
from executorch.extension.flat_tensor.serialize.serialize import FlatTensorSerializer
from support.hostile.bombs import bomb, table, vector
from support.models.small import PAIR, AddMul

from etdev import Lowerer
from etdev.errors import ArtifactError
from etdev.pte import embedded_plan
from etdev.pte.artifact import LEDGER
from etdev.pte.flatbuffer import DATA, PROGRAM, schema, unpack
from etdev.pte.ptd import keys_of
from etdev.pte.read import compiled, read

CURE = "give a .pte that ExecuTorch wrote"


def cheaply(call):
    """What a call raises, which takes neither long nor much memory."""
    tracemalloc.start()
    start = time.process_time()
    try:
        with pytest.raises(ArtifactError) as caught:
            call()
        assert time.process_time() - start < 5
        assert tracemalloc.get_traced_memory()[1] < 100 << 20
    finally:
        tracemalloc.stop()
    return str(caught.value)


def test_a_pte_that_would_unpack_to_billions_of_tables_is_refused(tmp_path):
    path = bomb(tmp_path / "bomb.pte", 2000)
    size = path.stat().st_size
    text = cheaply(lambda: read(path))
    assert text.startswith(
        f"{path}: is damaged or truncated (ValueError: {size} bytes would unpack"
    )
    assert text.endswith(f"; {CURE}")
    assert cheaply(lambda: compiled(path)) == text


def test_a_ptd_that_would_unpack_to_a_key_a_million_times_is_refused(tmp_path):
    builder = flatbuffers.Builder(0)
    key = builder.CreateString("k" * 100_000)
    named = vector(builder, table(builder, 3, _0=key), 30_000)
    builder.Finish(table(builder, 3, _2=named), file_identifier=b"FT01")
    packed = bytes(builder.Output())
    head = packed[:8] + b"FH01" + (40).to_bytes(4, "little") + (0).to_bytes(8, "little")
    # ExecuTorch has its header behind the first 8 bytes, which is not part of the flatbuffer.
    start = int.from_bytes(packed[:4], "little") + 48
    data = start.to_bytes(4, "little") + head[4:] + (len(packed) + 48).to_bytes(8, "little")
    path = tmp_path / "bomb.ptd"
    path.write_bytes(data.ljust(56, b"\0") + packed[8:])
    assert "bytes would unpack to" in cheaply(lambda: keys_of(path))


def test_segments_that_overlap_are_refused(tmp_path, mlp_pte):
    data = bytearray(mlp_pte.read_bytes())
    header = serialize._get_extended_header(data)
    program = serialize._flatbuffer_to_program(bytes(data[: header.program_size]))
    sizes = [segment.size for segment in program.segments if segment.size]
    whole = len(data) - header.segment_base_offset
    assert len(sizes) > 1
    for size in sizes:
        # Sizes are 8 bytes wide and stand in the flatbuffer as they are.
        place = data.index(size.to_bytes(8, "little"), 32, header.program_size)
        data[place : place + 8] = whole.to_bytes(8, "little")
    path = tmp_path / "overlap.pte"
    path.write_bytes(data)
    with pytest.raises(ArtifactError, match="overlap"):
        read(path)


def test_a_ledger_that_would_fill_the_memory_is_refused(tmp_path, monkeypatch):
    lowered = Lowerer([]).lower(AddMul(), PAIR)
    path = lowered.save(tmp_path / "net.pte", with_ledger=True)
    assert embedded_plan.read_ledger(path) == lowered.plan
    monkeypatch.setattr(embedded_plan, "_MOST_BYTES", 100)
    with pytest.raises(ArtifactError, match=r"has a damaged ledger .* over 100 bytes"):
        embedded_plan.read_ledger(path)
    with pytest.raises(ArtifactError, match="write the plan with etdev plan --json instead"):
        lowered.save(tmp_path / "other.pte", with_ledger=True)
    assert not (tmp_path / "other.pte").exists()


def test_a_ledger_that_is_cut_short_is_refused(monkeypatch, tmp_path):
    text = zlib.compress(json.dumps({"methods": []}).encode())
    program = None, {LEDGER: (0, memoryview(text[:-3]))}
    monkeypatch.setattr(embedded_plan, "opened", lambda path, use: program)
    with pytest.raises(ArtifactError, match="it is cut short"):
        embedded_plan.read_ledger(tmp_path / "net.pte")


def test_what_executorch_writes_is_far_within_the_bounds(mlp_pte):
    data = mlp_pte.read_bytes()
    size = int.from_bytes(data[16:24], "little")
    program = unpack(data[:size], schema(*PROGRAM))
    assert [plan.name for plan in program.execution_plan] == ["forward"]


def same(own, theirs):
    """Compare unpacked values with ExecuTorch's: absent vectors and texts are None there."""
    if dataclasses.is_dataclass(theirs):
        assert type(own).__name__ == type(theirs).__name__
        for field in dataclasses.fields(theirs):
            same(getattr(own, field.name), getattr(theirs, field.name))
    elif isinstance(theirs, list):
        assert len(own) == len(theirs)
        for one, other in zip(own, theirs, strict=True):
            same(one, other)
    elif isinstance(theirs, enum.Enum):
        assert (own.name, int(own)) == (theirs.name, int(theirs))
    elif isinstance(theirs, (bytes, bytearray)):
        assert bytes(own) == theirs
    elif theirs is None:
        assert own is None or len(own) == 0
    else:
        assert own == theirs


@pytest.mark.parametrize("name", ["mlp_pte", "dynamic_pte"])
def test_a_program_is_unpacked_as_executorch_unpacks_it(name, request):
    data = request.getfixturevalue(name).read_bytes()
    size = int.from_bytes(data[16:24], "little")
    same(unpack(data[:size], schema(*PROGRAM)), serialize._flatbuffer_to_program(data[:size]))


def test_a_program_is_read_without_torch(mlp_pte):
    code = "import sys; from etdev.pte.read import read; read(sys.argv[1]); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, mlp_pte], capture_output=True, text=True)
    assert not {"torch", "executorch"} & set(done.stdout.split())
    assert "etdev.pte.read" in done.stdout


def test_the_keys_of_a_ptd_are_those_that_executorch_reads(tmp_path):
    named = {f"weight.{number}": DataEntry(0, 1, None) for number in range(20)}
    written = bytes(FlatTensorSerializer().serialize(DataPayload([b"\1" * 64], named)))
    path = tmp_path / "net.ptd"
    path.write_bytes(written)
    assert keys_of(path) == named.keys()
    assert "named_data" in schema(*DATA).tables["FlatTensor"]


def test_every_table_of_executorchs_schema_is_measured():
    shape = schema(*PROGRAM)
    known = {*shape.tables, *shape.unions, *shape.enums}
    kinds = {one.kind for fields in shape.tables.values() for one in fields.values()}
    assert {"EValue", "KernelTypes", "ScalarType"} <= kinds & known
    assert {name for members in shape.unions.values() for name in members} <= shape.tables.keys()
    # The rest are numbers and texts.
    assert not {kind for kind in kinds - known if kind[0].isupper()}
