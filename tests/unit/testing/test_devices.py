"""The check `devices` on a backend whose partitions are on several devices."""

import pytest
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult

from etdev import Claim, Device, Group, hookimpl
from etdev.graph import op_name
from etdev.testing import CHECKS, run

(DEVICES,) = (check for check in CHECKS if check.name == "devices")


class TwoCoresBackend(BackendDetails):
    """Writes its core into its payload."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        told = {spec.key: spec.value for spec in compile_specs}
        return PreprocessResult(processed_bytes=told["etdev_device"])


class TwoCores:
    """Additions on the second core, all else on the first."""

    name = "two-cores"
    swapped = False

    @hookimpl
    def claim_nodes(self, program):
        calls = [node for node in program.graph.nodes if node.op == "call_function"]
        adds = [
            [n for n in calls if (op_name(n) == "aten.add.Tensor") == is_add] for is_add in (0, 1)
        ]
        return [
            Claim(
                "TwoCoresBackend",
                [Group([node]) for node in nodes],
                compile_specs={"core": str(core).encode()},
                device_types=("npu",),
            )
            for core, nodes in enumerate(adds)
        ]

    @hookimpl
    def resolve_device(self, partition):
        (core,) = (spec.value for spec in partition.compile_specs if spec.key == "core")
        return Device("npu", int(core))

    @hookimpl
    def payload_device(self, backend_id, payload):
        if backend_id == "TwoCoresBackend":
            core = int(payload.decode()[-1])
            return Device("npu", 1 - core if self.swapped else core)
        return None


class Swapped(TwoCores):
    swapped = True


@pytest.mark.parametrize(("plugin", "outcome"), [(TwoCores, "kept"), (Swapped, "broken")])
def test_each_payload_is_compared_with_the_device_of_its_own_partition(plugin, outcome):
    (result,) = run(plugin, checks=[DEVICES]).results
    assert (result.outcome, "planned on npu:" in result.text) == (outcome, outcome == "broken")
