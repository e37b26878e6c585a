"""OpenVINO's own compiler, with bytes that are the same in every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from executorch.backends.openvino.preprocess import OpenvinoBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etdev_openvino import blob
from etdev_openvino.payload import BACKEND_ID

# Without OpenVINO's generator of code for chains of small ops, which fails on some attention.
_PLAIN = {"SNIPPETS_MODE": "DISABLE"}


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
        result = _compiled(edge_program, compile_specs, {})
        return _changed(result, edge_program, precise=False)


class OpenvinoInFloat32(BackendDetails):  # type: ignore[misc]
    """Gives delegates that compute in float32 on every CPU, whatever it could round to."""

    instead = 'give the plugin precision = "bf16" or "f32"'

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compile a partition.

        Args:
            edge_program: Its program; OpenVINO's passes change it.
            compile_specs: Its compile specs.

        Raises:
            ValueError: OpenVINO wrote something else than blob.py knows.
        """
        # Some ops that OpenVINO makes of several exist only in bfloat16.
        settings = {"INFERENCE_PRECISION_HINT": "f32"}
        result = _compiled(edge_program, compile_specs, settings)
        if blob.generates_products(result.processed_bytes):
            # Code that is generated for products rounds, whatever is said of its layer.
            result = _compiled(edge_program, compile_specs, {**settings, **_PLAIN})
        return _changed(result, edge_program, precise=True)


class _Settings(bytes):
    """A value of a compile spec that ExecuTorch decodes to settings of OpenVINO, a dict."""

    settings: Mapping[str, str]

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> _Settings:
        self = cls()
        self.settings = settings
        return self

    def decode(self, *_: Any, **__: Any) -> Any:
        return dict(self.settings)


def _compiled(
    program: ExportedProgram, specs: list[CompileSpec], settings: Mapping[str, str]
) -> PreprocessResult:
    if any("group_norm" in str(node.target) for node in program.graph.nodes):
        # In float32 it generates code for them, and ends the process on some ops behind them.
        settings = {**settings, **_PLAIN}
    own = CompileSpec("config", _Settings.of(settings))
    try:
        return OpenvinoBackend.preprocess(program, [*specs, own])
    except RuntimeError as error:
        if "snippets" not in str(error) or _PLAIN.items() <= settings.items():
            raise
        return _compiled(program, specs, {**settings, **_PLAIN})


def _changed(result: PreprocessResult, program: ExportedProgram, precise: bool) -> PreprocessResult:
    names = {node.name for node in program.graph.nodes}
    data = blob.canonical(result.processed_bytes, names, precise)
    return replace(result, processed_bytes=data)
