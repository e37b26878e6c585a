"""The compiler: OpenVINO's own, with bytes that are the same in every process."""

from __future__ import annotations

from dataclasses import replace

from executorch.backends.openvino.preprocess import OpenvinoBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etdev_openvino.blob import canonical
from etdev_openvino.payload import BACKEND_ID


class OpenvinoByOrigin(BackendDetails):  # type: ignore[misc]
    """Gives what OpenvinoBackend would give, with layers named by the nodes that they come from."""

    equals = BACKEND_ID

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compile a partition.

        Args:
            edge_program: Its program; OpenVINO's passes change it.
            compile_specs: Its compile specs.
        """
        result = OpenvinoBackend.preprocess(edge_program, compile_specs)
        names = {node.name for node in edge_program.graph.nodes}
        return replace(result, processed_bytes=canonical(result.processed_bytes, names))
