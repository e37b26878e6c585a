"""Entries: whatever happens to their bytes, they give the same results or an error."""

import io
import json
from zipfile import ZIP_DEFLATED, ZIP_STORED, ZipFile

import pytest
from blake3 import blake3
from executorch.exir._serialize import _cord
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import PreprocessResult
from hypothesis import example, given, settings
from hypothesis import strategies as st

from etdev.delegate.cache.canonical import Uncacheable
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.entry import CHECKSUM_BYTES, MAGIC, CacheEntry
from etdev.errors import CacheError

KEY = "0" * 64
HANDLES = st.none() | st.dictionaries(st.integers(0, 9), st.tuples(st.integers(0, 9)))
PAYLOADS = st.lists(st.tuples(st.binary(max_size=50), HANDLES), max_size=3)


def result(payload: bytes, handles=None, data: bytes = b"weights") -> PreprocessResult:
    import torch

    store = NamedDataStore()
    store.add_named_data("inside", data, alignment=16)
    store.add_named_data("same", data, alignment=16)
    store.add_named_data("typed", torch.arange(6).reshape(2, 3))
    store.add_named_data("outside", data + b"!", external_tag="file")
    return PreprocessResult(payload, handles, store.get_named_data_store_output())


def again(results: list[PreprocessResult]) -> list[PreprocessResult]:
    data = CacheEntry.of(results, KEY, Digests()).to_bytes()
    return CacheEntry.from_bytes(data, "test", KEY).results(len(results), "test", Digests())


@settings(deadline=None, max_examples=50)
@given(PAYLOADS)
@example([(b"", {1: (2,), "name": (3, 4)})])
def test_results_survive(payloads):
    results = [result(payload, handles) for payload, handles in payloads]
    assert again(results) == results
    entry = CacheEntry.of(results, KEY, Digests())
    assert entry.to_bytes() == CacheEntry.of(again(results), KEY, Digests()).to_bytes()


def test_a_weight_is_kept_by_its_digest():
    import torch

    weight = torch.arange(6.0).reshape(2, 3)
    known, other = Digests(), Digests()
    known.of("weight", weight)
    one = result(b"x", data=weight.numpy().tobytes())
    entry = CacheEntry.of([one], KEY, known)
    assert one.data_store_output.buffers[0] not in entry.blobs.values()
    assert len(CacheEntry.of([one], KEY, other).blobs) == len(entry.blobs) + 1
    assert entry.results(1, "test", known) == [one]
    with pytest.raises(CacheError, match="invalid results"):
        entry.results(1, "test", other)


def test_a_view_is_known_by_the_bytes_that_a_backend_stores():
    import torch

    known = Digests()
    for weight in (torch.randn(4, 4).t(), torch.randn(8)[2:6], torch.empty(0), torch.tensor(2)):
        known.of("weight", weight)
        data = weight.contiguous().numpy().tobytes()
        digest = known.find(data)
        assert (digest is None) == (not data)
        if digest:
            assert known.content(digest) == data
    assert known.find(b"????????????????") is None


def test_large_weights_are_in_their_buffers():
    import torch

    known = Digests()
    weights = [torch.randn(1 << 20), torch.randn(1024, 513)[:, ::2].t(), torch.randn(5)]
    for weight in weights:
        known.of("weight", weight)
    results = [result(b"", data=weight.contiguous().numpy().tobytes()) for weight in weights]
    assert CacheEntry.of(results, KEY, known).results(3, "test", known) == results


@pytest.mark.skipif(
    not hasattr(_cord, "FileBackedData"), reason="this ExecuTorch keeps no buffers in files"
)
def test_a_buffer_in_a_file_is_read(tmp_path):
    (tmp_path / "data").write_bytes(b"in a file")
    one = result(b"x")
    one.data_store_output.buffers[0] = _cord.FileBackedData(str(tmp_path / "data"))
    (read,) = again([one])
    assert read.data_store_output.buffers[0] == b"in a file"


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        ({"processed_bytes": 3}, "buffer of int"),
        ({"processed_bytes": None}, "buffer of NoneType"),
        ({"debug_handle_map": {1: object()}}, "the debug handles {1: <object"),
        ({"_delegate_info_meta": {}}, "returns _delegate_info_meta, which an entry can't hold"),
    ],
)
def test_what_an_entry_can_not_keep_is_named(fault, why):
    broken = PreprocessResult(**{"processed_bytes": b"", **fault})
    with pytest.raises(Uncacheable, match=why):
        CacheEntry.of([broken], KEY, Digests())


def test_a_field_that_an_entry_has_no_place_for_is_not_dropped():
    for change in (
        lambda one: setattr(one, "scratch", [1]),
        lambda one: setattr(one.data_store_output, "scratch", [1]),
    ):
        one = result(b"x")
        change(one)
        with pytest.raises(Uncacheable, match="returns scratch, which an entry can't hold"):
            CacheEntry.of([one], KEY, Digests())
    sound = CacheEntry.of([result(b"x")], KEY, Digests())
    for place in (sound.content[0], sound.content[0]["data_store_output"]):
        place["scratch"] = [1]
        with pytest.raises(CacheError, match="invalid results"):
            sound.results(1, "test", Digests())
        del place["scratch"]
    assert len(sound.results(1, "test", Digests())) == 1


SOUND = CacheEntry.of([result(b"payload", {1: (2,)})], KEY, Digests()).to_bytes()


@settings(deadline=None)
@given(st.integers(0, len(SOUND) - 1), st.integers(1, 255))
def test_one_changed_byte_is_noticed(position, change):
    data = bytearray(SOUND)
    data[position] ^= change
    with pytest.raises(CacheError):
        CacheEntry.from_bytes(bytes(data), "test", KEY)


@pytest.mark.parametrize("data", [b"", b"etdev entry 3\n" + SOUND[len(MAGIC) :], SOUND + b"\0"])
def test_another_version_or_more_is_noticed(data):
    with pytest.raises(CacheError):
        CacheEntry.from_bytes(data, "test", KEY)


def test_an_entry_under_another_key_is_noticed():
    with pytest.raises(CacheError, match="is the entry of 000"):
        CacheEntry.from_bytes(SOUND, "test", "1" * 64)


def forged(head: object, compression: int = ZIP_STORED, blob: bytes = b"blob") -> bytes:
    """An entry with a right checksum and a head of anybody's choice."""
    file = io.BytesIO()
    with ZipFile(file, "w", compression) as zipped:
        zipped.comment = bytes(CHECKSUM_BYTES)
        zipped.writestr("entry.json", json.dumps(head))
        zipped.writestr("blob", blob)
    data = file.getvalue()[:-CHECKSUM_BYTES]
    return data + blake3(data).digest()


def read(data: bytes, count: int = 1) -> list[PreprocessResult]:
    return CacheEntry.from_bytes(data, "test", KEY).results(count, "test", Digests())


RESULT = {"processed_bytes": "blob", "debug_handle_map": "None", "data_store_output": None}
ENTRY = {"buffer_index": 0, "alignment": 1, "tensor_layout": None}
INSIDE = {"buffers": ["blob"], "pte_data": {"k": ENTRY}, "external_data": {}}


def test_a_forgery_that_nothing_is_wrong_with_is_read():
    (found,) = read(forged([KEY, [{**RESULT, "data_store_output": INSIDE}]]))
    assert found.processed_bytes == b"blob"
    assert found.data_store_output.buffers == [b"blob"]


def test_compressed_bytes_that_would_become_many_are_refused():
    bomb = forged([KEY, [RESULT]], ZIP_DEFLATED, bytes(1 << 20))
    with pytest.raises(CacheError, match="can't be read"):
        read(bomb)


@pytest.mark.parametrize(
    "change",
    [
        *({"buffer_index": 1}, {"buffer_index": -1}, {"alignment": 0}, {"alignment": "1"}),
        {"tensor_layout": {"scalar_type": 99, "sizes": [], "dim_order": []}},
        {"tensor_layout": {"scalar_type": 6, "sizes": [-1], "dim_order": [0]}},
    ],
)
def test_named_data_that_makes_no_sense_is_refused(change):
    data = {**INSIDE, "pte_data": {"k": {**ENTRY, **change}}}
    with pytest.raises(CacheError, match="invalid results"):
        read(forged([KEY, [{**RESULT, "data_store_output": data}]]))


def test_the_number_of_results_counts():
    with pytest.raises(CacheError, match="has 1 results, not 2"):
        read(SOUND, 2)
