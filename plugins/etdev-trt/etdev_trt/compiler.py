"""The compiler that builds an engine of a partition, as the payload of TensorRTBackend."""

from __future__ import annotations

import json
from typing import final

from executorch.exir.backend.backend_details import BackendDetails, CompileSpec, PreprocessResult
from torch._export.verifier import Verifier
from torch.export import ExportedProgram

from etdev import Device
from etdev_trt import vendor
from etdev_trt.support import aten_graph

OPTIONS = "etdev_trt"


@final
class TensorRTBuilder(BackendDetails):  # type: ignore[misc]
    """Builds an engine with torch-tensorrt, on the GPU that the partition is for."""

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Build an engine; `compile_specs` hold the plugin's options and the device."""
        specs = {spec.key: spec.value for spec in compile_specs}
        device = Device.parse(specs["target_device"].decode())
        options = json.loads(specs[OPTIONS])
        return PreprocessResult(vendor.build(_aten(edge_program), options, device))


def _aten(program: ExportedProgram) -> ExportedProgram:
    return ExportedProgram(
        root=program.graph_module,
        graph=aten_graph(program),
        graph_signature=program.graph_signature,
        state_dict=program.state_dict,
        range_constraints=program.range_constraints,
        module_call_graph=program.module_call_graph,
        constants=program.constants,
        verifiers=[Verifier],
    )
