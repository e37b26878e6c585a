"""ExecuTorch's own tests, which nobody here wrote: its operator suite as flows of etdev next to its
own path to XNNPACK, and its tests of partitioners with the partitioners adapted.

A slice of the first runs with the other tests, all of it with `make suites` and `make compat`; a
slice of the second is in unit/registry/test_adapted.py.
"""

from __future__ import annotations

import pytest
from executorch.exir.backend.partitioner import Partitioner

import suites

pytest.importorskip("openvino", reason="openvino is not installed")

# See suites/flows.py.
THEIRS = "executorch"
HOST = ("etdev_cpu", "etdev_openvino_cpu", "etdev_cpu_openvino")
OURS = (*HOST, "etdev_partitioner")
OPERATORS = "backends/test/suite/operators"
# Off by more than 1e-4 on XNNPACK, so that etdev doesn't delegate it; without a kernel, but not on
# OpenVINO.
FEW = [
    f"{OPERATORS}/test_gelu.py::test_gelu_f32_tanh_approximation",
    f"{OPERATORS}/test_adaptive_avgpool3d.py::test_adaptive_avgpool3d_dtype",
]


def operators(tests, folder):
    """By flow and test, the outcome of the last model of each: a test stops at one that fails."""
    outcomes = {flow: {} for flow in (THEIRS, *OURS)}
    for line in suites.run("flows", tests, folder / "outcomes.jsonl"):
        outcomes[line["flow"]][line["id"].replace(line["flow"], "")] = line
    return outcomes


@pytest.fixture(scope="module")
def few(tmp_path_factory):
    return operators(FEW, tmp_path_factory.mktemp("few"))


@pytest.fixture(scope="module")
def every(tmp_path_factory):
    return operators([OPERATORS], tmp_path_factory.mktemp("every"))


def results(lines, *names):
    return {test for test, line in lines.items() if line["result"] in names}


def failures(lines):
    return lines.keys() - results(lines, "SUCCESS", "SKIPPED")


def assert_no_worse(outcomes):
    """What ExecuTorch runs right, etdev runs right; the host fails by name and skips nothing."""
    right = results(outcomes[THEIRS], "SUCCESS")
    for flow in OURS:
        lines = outcomes[flow]
        assert lines.keys() == outcomes[THEIRS].keys()
        assert right <= results(lines, "SUCCESS"), flow
    for flow in HOST:
        lines = outcomes[flow]
        assert not [line for test in failures(lines) if not (line := lines[test])["refused"]]
        # But for models of the suite that PyTorch itself can't compute.
        assert all(lines[test]["error"] for test in results(lines, "SKIPPED"))


def test_a_few_operators_are_right_where_executorch_is(few):
    assert_no_worse(few)
    # ExecuTorch 1.4 doesn't ask a partitioner for a program with other ops.
    asked = hasattr(Partitioner, "transform_for_pre_decomposition")
    assert {flow: " ".join(line["result"] for line in few[flow].values()) for flow in few} == {
        THEIRS: "OUTPUT_MISMATCH_FAIL PTE_RUN_FAIL",
        "etdev_cpu": "SUCCESS SUCCESS",
        "etdev_openvino_cpu": "SUCCESS SUCCESS",
        "etdev_cpu_openvino": "SUCCESS SUCCESS",
        "etdev_partitioner": f"SUCCESS {'SUCCESS' if asked else 'LOWER_FAIL'}",
    }


@pytest.mark.suite
def test_every_operator_is_right_where_executorch_is(every):
    # Of the few, ExecuTorch itself runs none right.
    assert results(every[THEIRS], "SUCCESS")
    assert_no_worse(every)


@pytest.mark.suite
@pytest.mark.parametrize("flow", OURS)
def test_fewer_operators_fail_than_in_executorch(flow, every):
    unskipped = every[THEIRS].keys() - results(every[THEIRS], "SKIPPED")
    assert len(failures(every[flow]) & unskipped) < len(failures(every[THEIRS]))


# Tests of ExecuTorch that etdev answers otherwise, by the reason.
OTHERWISE = {
    "plugins claim nothing in the branches of control flow": (
        "TestBackendWithNamedDataMap::test_named_data_with_control_flow",
        "TestBackends::test_partition_with_control_flow",
        "TestBackends::test_partition_with_map",
        "TestBackends::test_partition_with_nested_control_flow",
        "TestNestedBackends::test",
        "TestToBackendMultiMethod::test_multi_method_to_backend_control_flow",
    ),
    "refused in words of ours": (
        "TestBackends::test_bad_partitioner",
        "TestPartitioner::test_bad_partitioner_tagged_model_input",
        "TestPartitioner::test_bad_partitioner_tagged_output",
        "TestUtils::test_invalid_partitioner_without_partitioner",
    ),
    "runs right where ExecuTorch gives up": (
        "TestPartitioner::test_buffer_mutation_unsupported",
        "TestPartitioner::test_partitioner_alert_split_constant_data",
    ),
    "a compile spec in it is not bytes": ("TestPartitioner::test_partitioner_with_spec",),
}
# Those that only the host answers otherwise.
HOST_OTHERWISE = {
    "a copy of a constant keeps its name inside a delegate": (
        "TestToBackendMultiMethod::test_multi_method_to_backend_constants",
    ),
    "refused in words of ours": (
        "TestToBackendMultiMethod::test_multi_method_to_backend_not_found",
    ),
}
PARTITIONED = {
    "exir": suites.files("exir/backend/test"),
    "xnnpack": [
        *(f"backends/xnnpack/test/{name}" for name in ("ops", "passes", "fragments", "recipes")),
        *suites.files("backends/xnnpack/test"),
    ],
}


def partitioned(tests, folder):
    """By test, the outcome of each way of running it; those that ExecuTorch passes itself."""
    outcomes = {}
    existing = [test for test in tests if (suites.WHEEL / test.partition("::")[0]).exists()]
    for line in suites.run("partitioners", existing, folder / "outcomes.jsonl"):
        test = line["test"].partition("::")[2]
        outcomes.setdefault(test, {})[line["mode"]] = line["result"]
    return {
        test: ways
        for test, ways in outcomes.items()
        if len(ways) > 1 and ways["theirs"] == "passed"
    }


@pytest.mark.suite
@pytest.mark.parametrize("folder", PARTITIONED)
def test_adapted_partitioners_pass_their_tests(folder, tmp_path):
    outcomes = partitioned(PARTITIONED[folder], tmp_path)
    # Of a way that passed nothing, nothing is known.
    for way in ("theirs", "partitioner", "host"):
        assert sum(ways[way] == "passed" for ways in outcomes.values()) > len(outcomes) / 2 > 0
    both = {test for tests in OTHERWISE.values() for test in tests} & outcomes.keys()
    host = {test for tests in HOST_OTHERWISE.values() for test in tests} & outcomes.keys()
    failed = {
        way: {test for test, ways in outcomes.items() if ways[way] != "passed"}
        for way in ("partitioner", "host")
    }
    assert failed == {"partitioner": both, "host": both | host}
