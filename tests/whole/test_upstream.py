"""What etdev relies on in torch and ExecuTorch beyond their documented API; a new release shows."""

import inspect

import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, schema
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes.propagate_device_pass import TARGET_DEVICE_COMPILE_SPEC_KEY

from etdev.schema import plan


def test_a_manager_takes_programs_methods_and_config():
    parameters = list(inspect.signature(EdgeProgramManager.__init__).parameters)
    assert parameters[1:4] == ["edge_programs", "constant_methods", "compile_config"]


def test_a_manager_keeps_its_etrecord():
    assert "_etrecord" in inspect.getsource(EdgeProgramManager.__init__)


def test_an_executorch_manager_keeps_its_tensor_data():
    assert "_tensor_data" in inspect.getsource(ExecutorchProgramManager.__init__)


def test_a_lowered_module_is_made_of_program_bytes_and_specs():
    parameters = list(inspect.signature(LoweredBackendModule.__init__).parameters)
    assert parameters[1:] == [
        "edge_program",
        "backend_id",
        "processed_bytes",
        "compile_specs",
        "named_data_store_output",
    ]


def test_a_preprocess_result_has_bytes_handles_and_data():
    fields = PreprocessResult.__dataclass_fields__
    assert {"processed_bytes", "debug_handle_map", "data_store_output"} <= set(fields)


def test_backends_compile_one_by_one_unless_they_say_otherwise():
    assert BackendDetails.preprocess_multimethod.__func__


def test_the_target_device_spec_is_called_that():
    assert TARGET_DEVICE_COMPILE_SPEC_KEY == plan.TARGET_DEVICE


def test_custom_metadata_survives_decomposition():
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.nn.functional.linear(x, x) + 1

    program = torch.export.export(Net(), (torch.randn(2, 2),)).run_decompositions({})
    for node in program.graph.nodes:
        if "linear" in node.name:
            node.meta["custom"] = {"mark": 1}
    after = program.run_decompositions()
    assert [n.name for n in after.graph.nodes if n.meta.get("custom") == {"mark": 1}]


def test_a_pte_reads_back_into_the_schema():
    from executorch.exir._serialize._program import PTEFile, deserialize_pte_binary

    assert list(inspect.signature(deserialize_pte_binary).parameters) == ["program_data"]
    assert {"program", "named_data"} <= set(PTEFile.__dataclass_fields__)
    plans = schema.ExecutionPlan.__dataclass_fields__
    assert {"delegates", "chains", "non_const_buffer_sizes", "non_const_buffer_device"} <= set(
        plans
    )
