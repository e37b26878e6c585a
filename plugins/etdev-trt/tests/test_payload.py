"""The device in a delegate's payload, as each version of torch-tensorrt writes it."""

import contextlib
import importlib.util
import json
import struct
import sys

import pytest
from etdev_trt.payload import device_of
from etdev_trt.plugin import TrtPlugin
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.toys import torch_tensorrt as versions

from etdev import Device
from etdev.errors import ArtifactError

HEADER = struct.Struct("<4sIIIQ8s")
# On a busy machine the first example takes long.
LOADED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
VALUES = st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.just([[]])


@pytest.fixture(params=versions.VERSIONS)
def serialization(request, monkeypatch):
    """torch-tensorrt's serialiser, a module that imports nothing else of it."""
    if reason := versions.why_missing(request.param):
        pytest.skip(reason)
    path = versions.site(request.param) / "torch_tensorrt/executorch/serialization.py"
    spec = importlib.util.spec_from_file_location("serialization", path)
    module = importlib.util.module_from_spec(spec)
    # dataclasses look their module up.
    monkeypatch.setitem(sys.modules, "serialization", module)
    spec.loader.exec_module(module)
    return module


def written(serialization, device, **fields):
    metadata = serialization.TensorRTBlobMetadata(
        io_bindings=[serialization.TensorRTIOBinding(name='"device_id":5')],
        device_id=device,
        **fields,
    )
    return serialization.serialize_engine(b"engine", metadata)


def blob(metadata, magic=b"TR01", engine=b"engine"):
    """A payload with metadata that no serialiser would write."""
    text = metadata if isinstance(metadata, bytes) else json.dumps(metadata).encode()
    start = -(-(HEADER.size + len(text)) // 16) * 16
    header = HEADER.pack(magic, HEADER.size, len(text), start, len(engine), b"")
    return (header + text).ljust(start, b"\0") + engine


@pytest.mark.parametrize("index", [0, 1, 127])
def test_the_device_of_every_serialiser_is_read(serialization, index):
    payload = written(serialization, index)
    assert payload[:4] == b"TR01"
    assert device_of(payload) == Device("cuda", index)


def test_aliased_outputs_make_another_kind_of_blob_with_the_same_device(serialization):
    if not hasattr(serialization, "TENSORRT_MAGIC_ALIASED_IO"):
        pytest.skip("2.13 has no aliased outputs")
    payload = written(serialization, 3, aliased_io={"y": ("x", "user")})
    assert payload[:4] == b"TR02"
    assert device_of(payload) == Device("cuda", 3)


def test_our_payloads_equal_those_of_the_serialisers(serialization):
    metadata = serialization.TensorRTBlobMetadata(device_id=2)
    theirs = serialization.serialize_engine(b"engine", metadata)
    reserved = slice(24, 32)
    ours = bytearray(blob(metadata.to_json()))
    ours[reserved] = theirs[reserved]
    assert bytes(ours) == theirs


def test_every_magic_of_the_serialisers_is_known(serialization):
    known = getattr(serialization, "SUPPORTED_MAGICS", (serialization.TENSORRT_MAGIC,))
    assert {device_of(blob({"device_id": 1}, magic)) for magic in known} == {Device("cuda", 1)}


def test_without_a_device_the_runtime_takes_the_first():
    assert device_of(blob({"io_bindings": []})) == Device("cuda", 0)


def test_of_two_devices_the_runtime_takes_the_one_written_first():
    assert device_of(blob(b'{"device_id":1,"device_id":2}')) == Device("cuda", 1)


@pytest.mark.parametrize("index", [-1, 128, 10**400, "1", 1.0, True, None, [1]])
def test_a_device_that_no_label_could_name_is_refused(index):
    with pytest.raises(ArtifactError) as caught:
        device_of(blob({"device_id": index}))
    assert str(caught.value) == (
        f"TensorRTBackend: has an engine for GPU {str(index)[:20]}, which can't exist; "
        "lower the model again"
    )


def test_an_engine_is_called_with_a_value_for_each_of_its_bindings():
    metadata = {"io_bindings": [{"name": "x"}, {"name": "y"}]}
    assert device_of(blob(metadata), 2) == device_of(blob(metadata), None) == Device("cuda", 0)
    with pytest.raises(ArtifactError) as caught:
        device_of(blob(metadata), 3)
    assert caught.value.what == "has an engine with 2 bindings and is called with 3 values"


def test_outputs_that_an_engine_writes_in_place_may_be_left_out_together():
    """As `zero_copy_kv` of pytorch/TensorRT#4667 has it; read, not tried with its runtime."""
    names = ("x", "keys", "values", "y", "new_keys", "new_values")
    aliased = [{"output": f"new_{name}", "input": name} for name in names[1:3]]
    payload = blob({"io_bindings": [{"name": n} for n in names], "aliased_io": aliased}, b"TR02")
    assert device_of(payload, 6) == device_of(payload, 4) == Device("cuda", 0)
    with pytest.raises(ArtifactError, match="with 6 bindings and is called with 5 values"):
        device_of(payload, 5)


@pytest.mark.parametrize(
    "payload",
    [
        b"",
        b"TR01",
        b"\0" * 64,
        blob({"device_id": 1}, b"TR03"),
        blob({"device_id": 1})[:-1],
        blob({"device_id": 1}, engine=b""),
        blob({"io_bindings": None}),
        blob({"io_bindings": [{}]}),
        blob({"io_bindings": ["x"]}),
        blob({"aliased_io": [{"output": "y"}]}),
        blob(b"{"),
        blob(b"\xff"),
        blob(b"[1]"),
        blob(b"[" * 100_000),
        HEADER.pack(b"TR01", 0, 8, 48, 0, b"") + b" " * 16,
        HEADER.pack(b"TR01", 32, 2**32 - 1, 48, 0, b"") + b" " * 16,
        HEADER.pack(b"TR01", 32, 2, 40, 0, b"") + b"{}" + b" " * 30,
        HEADER.pack(b"TR01", 32, 2, 48, 2**64 - 1, b"") + b"{}" + b" " * 30,
    ],
    ids=repr,
)
def test_a_damaged_payload_is_refused(payload):
    with pytest.raises(ArtifactError, match=r"^TensorRTBackend: is damaged: its payload "):
        device_of(payload)


@settings(LOADED, suppress_health_check=list(HealthCheck))
@given(st.data())
def test_what_the_serialisers_parser_refuses_is_refused(serialization, data):
    payload = bytearray(written(serialization, 1))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    payload = payload[: data.draw(st.integers(0, len(payload)))]
    try:
        serialization.deserialize_engine(bytes(payload))
    except Exception:
        with pytest.raises(ArtifactError):
            device_of(bytes(payload))


@LOADED
@given(st.binary(max_size=200))
def test_any_bytes_are_damaged(data):
    with pytest.raises(ArtifactError):
        device_of(data)


@LOADED
@given(st.dictionaries(st.sampled_from(["device_id", "x"]), VALUES), st.data())
def test_any_metadata_and_any_flipped_byte_give_a_gpu_or_our_error(metadata, data):
    payload = bytearray(blob(metadata))
    place = data.draw(st.integers(0, len(payload) - 1))
    payload[place] = data.draw(st.integers(0, 255))
    with contextlib.suppress(ArtifactError):
        assert device_of(bytes(payload)).type == "cuda"


def test_a_pickle_in_the_metadata_is_not_loaded(tmp_path):
    # Unpickled, it would make a file.
    bomb = f"cposix\nsystem\n(S'touch {tmp_path}/opened'\ntR."
    assert device_of(blob({"device_id": 1, "serialized_metadata": bomb})) == Device("cuda", 1)
    assert list(tmp_path.iterdir()) == []


def test_payloads_of_other_backends_are_theirs():
    assert TrtPlugin().payload_device("CudaBackend", b"", None) is None
