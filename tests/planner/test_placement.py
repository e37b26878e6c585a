"""Placement: who may say where a partition runs, and what the backend is told."""

import warnings

import pytest

from etdev.errors import DeviceError, EtdevWarning, PluginError
from etdev.planner.placement import place, with_caveat
from etdev.planner.rules import Rules, rules
from etdev.registry import Registry
from etdev.schema.compile_specs import CompileSpec
from etdev.schema.device import CPU, Device
from etdev.schema.plan import Assumed, Partition

TYPES = ("cpu", "cuda")
FORWARD = Partition("trt_0", "forward", "trt", "TensorRTBackend", ("add",), device_types=TYPES)
GUESS = Assumed(Device("cuda"), "the engine names no device")
GUESSED = (
    "trt: had to assume cuda:0 for forward/trt_0: the engine names no device; "
    'pin it: devices={"trt": "cuda:0"}'
)


def cuda(index):
    return Device("cuda", index)


def placed_by(answer, partition=FORWARD, strict=False):
    """A partition where its plugin says it runs."""
    return place(partition, None, lambda: answer, strict)


@pytest.mark.parametrize(
    ("explicit", "registry", "device"),
    [
        ({"forward": cuda(1), "*": cuda(2)}, {"forward": cuda(3)}, cuda(1)),
        ({"*": cuda(2)}, {"forward": cuda(3)}, cuda(2)),
        ({"prefill": cuda(2)}, {"forward": cuda(3), "*": cuda(4)}, cuda(3)),
        ({}, {"*": cuda(4)}, cuda(4)),
        ({"*": CPU}, {"*": cuda(4)}, CPU),
        ({"prefill": cuda(2)}, {}, None),
    ],
)
def test_the_nearest_pin_wins(explicit, registry, device):
    assert Rules({"trt": explicit}, {"trt": registry}).device_of(FORWARD) == device


def test_a_pin_of_another_plugin_is_none_of_its_business():
    assert Rules({"cuda": {"*": cuda(1)}}).device_of(FORWARD) is None


def test_a_derived_device_is_taken_as_it_is():
    placed = placed_by(cuda(1))
    assert (placed.device, placed.device_source, placed.device_note) == (cuda(1), "derived", "")


def test_no_answer_means_the_cpu_by_default():
    placed = placed_by(None, strict=True)
    assert (placed.device, placed.device_source) == (CPU, "default")


def test_an_assumed_device_warns_with_the_cure_and_keeps_its_reason():
    with pytest.warns(EtdevWarning) as caught:
        placed = placed_by(GUESS)
    assert [str(warning.message) for warning in caught] == [GUESSED]
    assert (placed.device, placed.device_source) == (cuda(0), "assumed")
    assert placed.device_note == "the engine names no device"


def test_strict_refuses_an_assumed_device():
    with pytest.raises(DeviceError) as caught:
        placed_by(GUESS, strict=True)
    assert str(caught.value) == GUESSED


def test_strict_takes_a_derived_device_without_a_word():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert placed_by(cuda(0), strict=True).device == cuda(0)


@pytest.mark.parametrize("arguments", [("cuda:0", "why"), (Device("cuda"), None)])
def test_an_assumed_device_is_a_device_with_a_reason(arguments):
    with pytest.raises(TypeError):
        Assumed(*arguments)


def test_the_cpu_carries_no_target_device():
    assert FORWARD.on(CPU, "default").compile_specs == ()


def test_another_device_is_the_last_of_the_specs_and_there_once():
    fast = CompileSpec("fast", b"1")
    part = Partition(
        "trt_0", "forward", "trt", "B", ("add",), device_types=TYPES, compile_specs=(fast,)
    )
    placed = part.on(cuda(1), "pinned")
    assert placed.compile_specs == (fast, CompileSpec("target_device", b"cuda:1"))
    assert part.compile_specs == (fast,)


@pytest.mark.parametrize("device", [CPU, Device("cuda")])
def test_a_plugin_may_not_write_target_device_itself(device):
    spec = CompileSpec("target_device", b"cuda:0")
    part = Partition(
        "trt_0", "forward", "trt", "B", ("add",), device_types=TYPES, compile_specs=(spec,)
    )
    with pytest.raises(PluginError) as caught:
        part.on(device, "derived")
    assert str(caught.value) == (
        "trt: gives its own target_device compile spec for forward/trt_0; "
        "return the device from resolve_device"
    )


@pytest.mark.parametrize(
    ("given", "read"),
    [
        (None, {}),
        ({}, {}),
        ({"trt": "cuda:1"}, {"trt": {"*": cuda(1)}}),
        ({"trt": cuda(1)}, {"trt": {"*": cuda(1)}}),
        ({"cuda": {"forward": "cuda", "*": CPU}}, {"cuda": {"forward": cuda(0), "*": CPU}}),
    ],
)
def test_pins_are_given_per_plugin_or_per_method(given, read):
    assert rules(Registry(), ["trt", "cuda"], devices=given).devices == read


@pytest.mark.parametrize("pinned", ["gpu", {"forward": "gpu"}])
def test_a_bad_pin_is_named_with_its_plugin(pinned):
    with pytest.raises(DeviceError) as caught:
        rules(Registry(), ["trt"], devices={"trt": pinned})
    assert str(caught.value) == (
        "devices['trt']: unknown type 'gpu'; valid are cpu and cuda:0 to cuda:127"
    )


def test_a_backend_that_does_not_run_on_a_device_is_not_labelled_with_it():
    part = Partition("cpu_0", "forward", "cpu", "XnnpackBackend", ("add",))
    with pytest.raises(DeviceError) as caught:
        part.on(Device("cuda", 1), "pinned")
    assert str(caught.value) == (
        "cpu: XnnpackBackend does not run on cuda:1, where forward/cpu_0 was put (pinned); "
        "it runs on cpu"
    )


def test_a_backend_that_only_runs_elsewhere_has_its_default_there():
    part = Partition("trt_0", "forward", "trt", "B", ("add",), device_types=("cuda",))
    placed = placed_by(None, part)
    assert (placed.device, placed.device_source) == (Device("cuda", 0), "default")


def test_a_caveat_is_kept_beside_the_device_and_shown():
    part = Partition("a_0", "forward", "a", "B", ("add",), device_types=("cuda",))
    placed = part.on(Device("cuda", 1), "pinned")
    with pytest.warns(EtdevWarning) as caught:
        noted = with_caveat(placed, "it runs on cuda:0")
    assert (noted.device, noted.device_note) == (Device("cuda", 1), "it runs on cuda:0")
    assert str(caught[0].message) == (
        "a: forward/a_0 is put on cuda:1 (pinned), but it runs on cuda:0"
    )
    assert with_caveat(placed, "") is placed
