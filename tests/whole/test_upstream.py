"""What etdev relies on in torch and ExecuTorch beyond their documented API; a new release shows."""

import ast
import importlib
import inspect

import pytest
import torch
from examples.documents import ROOT
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, schema
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes.propagate_device_pass import TARGET_DEVICE_COMPILE_SPEC_KEY

from etdev.schema import partition

# Every name of torch's and ExecuTorch's that neither documents, and what it is needed for. Those
# who add one say so here; those who move to a newer release look at these first.
PRIVATE = {
    "a .pte and a .ptd are read and written": (
        "executorch.exir._serialize._named_data_store.NamedDataStore",
        "executorch.exir._serialize._named_data_store.NamedDataStoreOutput",
        "executorch.exir._serialize._program",
        "executorch.exir._serialize._program.deserialize_pte_binary",
        "executorch.exir._serialize.data_serializer.DataEntry",
    ),
    "programs become edge programs as in to_edge, once for all plugins": (
        "executorch.exir.dialects._ops.ops",
        "executorch.exir.dialects.edge._ops.EdgeOpOverload",
        "executorch.exir.program._program",
        "executorch.exir.program._program._create_empty_etrecord",
        "executorch.exir.program._program._generate_edge_program",
        "executorch.exir.program._program.lift_constant_tensor_pass",
        "executorch.exir.tracer._default_decomposition_table",
        "torch._check",
        "torch._decomp.decomposition_table",
        "torch._dispatch.python.enable_python_dispatcher",
        "torch._export.verifier.SpecViolationError",
        "torch._export.verifier.Verifier",
        "torch._inductor.decomposition.decompositions",
        "torch._prims",
    ),
    "a .pt2 is looked at before torch loads it": (
        "torch.export.pt2_archive._package.PT2ArchiveReader",
        "torch.utils._sympy.functions",
    ),
    "copies between devices": ("executorch.exir.passes._device_copy_ops_registry",),
    "what kind of thing an op, a value or a shape is": (
        "torch._C",
        "torch._guards.active_fake_mode",
        "torch._ops.HigherOrderOperator",
        "torch._ops.OpOverload",
        "torch._ops.OpOverloadPacket",
        "torch._subclasses.FakeTensor",
        "torch._subclasses.FakeTensorMode",
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "torch._subclasses.functional_tensor.FunctionalTensor",
        "torch.utils._ordered_set.OrderedSet",
        "torch.utils._python_dispatch.TorchDispatchMode",
        "torch.utils._python_dispatch.is_traceable_wrapper_subclass",
        "torch.utils._python_dispatch.transform_subclass",
        "torch.utils._pytree",
    ),
    "a mode of the caller's is off while etdev works": (
        "torch.utils._python_dispatch._disable_current_modes",
    ),
    "code that torch generates is not kept, and its logs are": (
        "torch._logging",
        "torch.fx.graph_module._loader",
    ),
    "etdev.testing: AOTInductor under CudaBackend, as a fake and for the CPU": (
        "torch._inductor",
        "torch.export.pt2_archive._package_weights.TensorProperties",
        "torch.export.pt2_archive._package_weights.Weights",
    ),
    "etdev.testing: torch-tensorrt is imported over a fake of TensorRT": (
        "torch._dynamo",
        "torch._library",
    ),
    "etdev-cuda: what AOTInductor has code for": (
        "torch._inductor.codegen.common.pointwise_overrides_data",
        "torch._inductor.config",
        "torch._inductor.decomposition.conv1d_to_conv2d",
        "torch._inductor.decomposition.select_decomp_table",
        "torch._inductor.lowering.lowerings",
    ),
}
NAMES = sorted(name for names in PRIVATE.values() for name in names)


def private(name):
    """Whether a dotted name goes through something private of torch or ExecuTorch."""
    first, *parts = name.split(".")
    hidden = any(part.startswith("_") and not part.startswith("__") for part in parts)
    return first in ("torch", "executorch") and hidden


def imported(tree):
    """Dotted names of what a file imports."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not node.level:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)


def reached(tree):
    """The private parts of torch that a file reaches as attributes, such as torch._ops."""
    for node in ast.walk(tree):
        name = ast.unparse(node) if isinstance(node, ast.Attribute) else ""
        # Ops have names with underscores of their own.
        if name.count(".") == 1 and name.startswith("torch._"):
            yield name


def test_what_is_private_upstream_and_used_here_is_listed():
    files = [*(ROOT / "etdev").rglob("*.py"), *(ROOT / "plugins").glob("*/etdev_*/*.py")]
    trees = [ast.parse(file.read_text("utf-8")) for file in files]
    used = {name for tree in trees for name in (*imported(tree), *reached(tree)) if private(name)}
    assert (sorted(used - set(NAMES)), sorted(set(NAMES) - used)) == ([], [])


@pytest.mark.parametrize("name", NAMES)
def test_what_is_private_upstream_is_still_there(name):
    try:
        importlib.import_module(name)
    except ModuleNotFoundError:
        module, _, attribute = name.rpartition(".")
        assert hasattr(importlib.import_module(module), attribute)


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
    assert TARGET_DEVICE_COMPILE_SPEC_KEY == partition.TARGET_DEVICE


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
