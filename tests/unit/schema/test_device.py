"""Devices: what parses, what prints, what is refused and how."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from etdev.errors import DeviceError
from etdev.schema.device import CPU, DEVICE_TYPES, MAX_INDEX, Device, Probe

VALID = "; valid are cpu, cuda:0 to cuda:127, and kinds of plugins' own, as npu:0"
devices = st.just(CPU) | st.builds(Device, st.just("cuda"), st.integers(0, MAX_INDEX))


@pytest.mark.parametrize(
    ("text", "device", "printed"),
    [
        ("cpu", Device("cpu"), "cpu"),
        ("cpu:0", Device("cpu"), "cpu"),
        ("cuda", Device("cuda", 0), "cuda:0"),
        ("cuda:0", Device("cuda", 0), "cuda:0"),
        ("cuda:127", Device("cuda", 127), "cuda:127"),
        ("npu", Device("npu", 0), "npu:0"),
        ("npu:1", Device("npu", 1), "npu:1"),
    ],
)
def test_a_device_is_read_and_printed_as_torch_writes_it(text, device, printed):
    assert (Device.parse(text), str(Device.parse(text))) == (device, printed)


def test_a_device_parses_as_itself():
    assert Device.parse(Device("cuda", 3)) == Device("cuda", 3)


@pytest.mark.parametrize(
    ("value", "what"),
    [
        ("gpu", "unknown type 'gpu'"),
        ("cuda:-1", "cannot read 'cuda:-1'"),
        ("cuda:128", "index 128 of cuda is out of range"),
        ("cuda:1\n", "cannot read 'cuda:1\\n'"),
        ("cuda:\u0661", "cannot read 'cuda:\u0661'"),
        ("cpu:3", "cpu:3 does not exist, there is one CPU"),
        ("CUDA:0", "cannot read 'CUDA:0'"),
        ("", "cannot read ''"),
        (3, "cannot read 3"),
    ],
)
def test_what_is_no_device_is_refused_with_the_value(value, what):
    with pytest.raises(DeviceError) as caught:
        Device.parse(value)
    assert str(caught.value) == f"device: {what}{VALID}"


@pytest.mark.parametrize(
    ("arguments", "what"),
    [
        (("cuda", True), "index True of cuda is out of range"),
        (("cuda", -1), "index -1 of cuda is out of range"),
        (("cuda", "1"), "index '1' of cuda is out of range"),
        (("cuda", None), "index None of cuda is out of range"),
        (("cpu", 1), "cpu:1 does not exist, there is one CPU"),
        (("cud",), "unknown type 'cud'"),
        (("Npu",), "unknown type 'Npu'"),
        ((["cuda"],), "unknown type ['cuda']"),
    ],
)
def test_a_device_that_does_not_exist_can_not_be_made(arguments, what):
    with pytest.raises(DeviceError) as caught:
        Device(*arguments)
    assert str(caught.value) == f"device: {what}{VALID}"


@given(devices)
def test_every_device_is_read_back_from_its_text(device):
    assert Device.parse(str(device)) == device


@given(st.text() | st.from_regex(r"(cpu|cuda)(:\d{1,4})?"))
def test_any_text_is_a_device_or_a_device_error(text):
    try:
        device = Device.parse(text)
    except DeviceError:
        return
    assert Device.parse(str(device)) == device


def test_devices_sort_by_type_then_index():
    assert sorted([Device("cuda", 10), Device("cuda", 2), CPU]) == [
        CPU,
        Device("cuda", 2),
        Device("cuda", 10),
    ]


def test_the_types_are_those_that_executorch_can_write():
    from executorch.exir.schema import DeviceType

    assert sorted(DEVICE_TYPES) == sorted(member.name.lower() for member in DeviceType)


@pytest.mark.parametrize(
    ("text", "memory"), [("cpu", "cpu"), ("cuda:1", "cuda:1"), ("npu:1", "cpu"), ("tpu", "cpu")]
)
def test_a_kind_that_executorch_does_not_know_has_its_tensors_on_the_host(text, memory):
    assert Device.parse(text).memory == Device.parse(memory)


def test_a_probe_takes_devices_or_their_text():
    assert Probe(["cuda:1", CPU]).devices == (Device("cuda", 1), CPU)


def test_a_probe_does_not_take_one_text_for_a_list():
    with pytest.raises(DeviceError) as caught:
        Probe("cuda")
    assert str(caught.value) == "device: 'cuda' is not a list of devices; write [\"cuda\"]"
