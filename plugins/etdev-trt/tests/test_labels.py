"""etdev check: the label of a delegate against the GPU in its engine."""

import re

import pytest
from etdev_trt.testing.programs import Engines, exported

from etdev import CPU, Device, Lowerer
from etdev.errors import EtdevWarning, install_hint
from etdev.runtime.check import check

pytestmark = pytest.mark.usefixtures("torch_tensorrt")
TARGETS = [CPU, Device("cuda", 0), Device("cuda", 1)]


def contradictions(path):
    problems = check(path, TARGETS, plugins=Lowerer(["trt"]).plugins)
    return [line for line in problems if "its payload uses" in line]


def test_true_labels_are_no_problem(tmp_path):
    lowered = Lowerer(["trt"]).lower(exported(Engines("0%9", "1%9")))
    assert contradictions(lowered.save(tmp_path / "true.pte")) == []


def test_a_runtime_that_is_not_installed_is_a_problem_of_this_machine_alone(tmp_path, monkeypatch):
    path = Lowerer(["trt"]).lower(exported(Engines("0%9"))).save(tmp_path / "net.pte")
    monkeypatch.setattr("etdev_trt.runner.PACKAGE", "no_such_runtime")
    assert check(path, plugins=Lowerer(["trt"]).plugins) == [
        f"trt: no-such-runtime is not installed; {install_hint('etdev-trt', 'runtime')}"
    ]
    assert check(path, TARGETS, plugins=Lowerer(["trt"]).plugins) == []


def test_a_pin_that_the_engine_contradicts_is_reported(tmp_path):
    with pytest.warns(EtdevWarning, match="engine .* was built for cuda:0 and runs there"):
        lowered = Lowerer(["trt"], devices={"trt": "cuda:1"}).lower(exported(Engines("0%9", "1%9")))
    assert [bool(part.device_note) for part in lowered.plan.partitions] == [True, False]
    assert contradictions(lowered.save(tmp_path / "lie.pte")) == [
        "method forward: delegate 0 (TensorRTBackend) is labelled cuda:1, "
        "but its payload uses cuda:0"
    ]


def one_binding(found):
    """The list of an engine's bindings with only the first, as long as before."""
    return b'"io_bindings":[{"name":"x"}]'.ljust(len(found[0]))


@pytest.mark.parametrize(
    ("pattern", "damage", "text"),
    [
        (
            rb"TR01",
            b"TR00",
            "is damaged: its payload begins with b'TR00', not with TR01 or TR02",
        ),
        (
            rb'"device_id":0',
            b'"device_id":?',
            "is damaged: its payload has metadata that is not JSON",
        ),
        (
            rb'"io_bindings":\[[^]]*\][^]]*\][^]]*\]',
            one_binding,
            "has an engine with 1 bindings and is called with 2 values",
        ),
    ],
)
def test_an_engine_that_can_not_run_is_a_problem(pattern, damage, text, tmp_path):
    path = Lowerer(["trt"]).lower(exported(Engines("0%9"))).save(tmp_path / "engine.pte")
    data, count = re.subn(pattern, damage, path.read_bytes())
    assert (count, len(data)) == (1, path.stat().st_size)
    path.write_bytes(data)
    problems = check(str(path), TARGETS, plugins=Lowerer(["trt"]).plugins)
    line = f"method forward: delegate 0 (TensorRTBackend) {text}; lower the model again"
    assert line in problems


@pytest.mark.versions
def test_a_label_of_torch_tensorrts_own_making_is_checked_too(tmp_path):
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower
    from executorch.exir.backend.compile_spec_schema import CompileSpec
    from torch_tensorrt.executorch.partitioner import TensorRTPartitioner

    partitioner = TensorRTPartitioner([CompileSpec("target_device", b"cuda:0")])
    manager = to_edge_transform_and_lower(
        exported(Engines("1%9")),
        partitioner=[partitioner],
        compile_config=EdgeCompileConfig(_check_ir_validity=False),
    )
    path = tmp_path / "theirs.pte"
    path.write_bytes(manager.to_executorch().buffer)
    assert len(contradictions(path)) == 1
