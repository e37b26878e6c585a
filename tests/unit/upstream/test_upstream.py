"""What etdev relies on in torch and ExecuTorch beyond their documented API; a new release shows."""

import ast
import importlib
import inspect

import pytest
import torch
from executorch.exir import EdgeProgramManager, ExecutorchProgramManager, schema
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.exir.passes.propagate_device_pass import TARGET_DEVICE_COMPILE_SPEC_KEY
from support.documents import ROOT
from torch.export import exported_program

from etdev.schema import partition
from etdev.upstream.decompositions import executorch_table
from etdev.upstream.shortcuts.decompositions import quick_decompositions

# Every name of torch's and ExecuTorch's that neither documents, and what it is needed for. Those
# who add one say so here; those who move to a newer release look at these first. The host has all
# of them in etdev/upstream/.
PRIVATE = {
    "verification leaves open the order of equal values, and what rounding decides": (
        "torch.utils._python_dispatch.TorchDispatchMode",
    ),
    "a .pte is read and written": (
        "executorch.exir._serialize._named_data_store.NamedDataStore",
        "executorch.exir._serialize._named_data_store.NamedDataStoreOutput",
        "executorch.exir._serialize.data_serializer.DataEntry",
    ),
    "programs become edge programs as in to_edge, once for all plugins": (
        "executorch.exir.dialects._ops.ops",
        "executorch.exir.dialects.edge._ops.EdgeDialectFunctionSchema",
        "executorch.exir.dialects.edge._ops.EdgeOpOverload",
        "executorch.exir.program._program",
        "executorch.exir.program._program.lift_constant_tensor_pass",
        "executorch.exir.tracer._default_decomposition_table",
        "torch._decomp.decomposition_table",
        "torch._export.utils",
        "torch._export.verifier.Verifier",
        "torch._inductor.decomposition.decompositions",
        "torch._prims",
    ),
    "the memory orders in which XNNPACK's compiler has ops": (
        "executorch.backends.xnnpack._passes.channels_last_tagged_reshape_pass"
        ".ChannelsLastTaggedReshapePass",
    ),
    "bounds of symbolic sizes": (
        "torch.utils._sympy.symbol.SymT",
        "torch.utils._sympy.symbol.symbol_is_type",
        "torch.utils._sympy.value_ranges.ValueRanges",
        "torch.utils._sympy.value_ranges.bound_sympy",
    ),
    "copies between devices": ("executorch.exir.passes._device_copy_ops_registry",),
    "what kind of thing an op, a value or a shape is": (
        "torch._C",
        "torch._guards.active_fake_mode",
        "torch._ops.HigherOrderOperator",
        "torch._ops.OpOverload",
        "torch._ops.OpOverloadPacket",
        "torch._prims_common.is_contiguous_or_false",
        "torch._subclasses.fake_tensor.FakeTensor",
        "torch._subclasses.fake_tensor.FakeTensorMode",
        "torch._subclasses.functional_tensor.FunctionalTensor",
        "torch.utils._python_dispatch.is_traceable_wrapper_subclass",
        "torch.utils._python_dispatch.transform_subclass",
        "torch.utils._pytree",
    ),
    "a mode of the caller's is off while etdev works": (
        "torch.utils._python_dispatch._disable_current_modes",
    ),
    "the error that torch.export.load only logs": ("torch.export.pt2_archive._package.load_pt2",),
    "code of partitions is generated only if it is run": (
        "torch.fx._lazy_graph_module._LazyGraphModule",
    ),
    "torch.export prints no graph of what it can't trace": ("torch.export._trace",),
    "where a model restricts a dynamic size": ("torch._logging.structured.INTERN_TABLE",),
    "etdev_cuda.testing: AOTInductor under CudaBackend, as a fake and for the CPU": (
        "torch._inductor",
        "torch.export.pt2_archive._package_weights.TensorProperties",
        "torch.export.pt2_archive._package_weights.Weights",
    ),
    "etdev_trt.testing: torch-tensorrt is imported over a fake of TensorRT": (
        "torch._dynamo",
        "torch._library",
    ),
    "etdev-cpu: one compiled structure for several partitions": (
        "executorch.exir._serialize._named_data_store.NamedDataStore",
    ),
    "etdev-cuda: what AOTInductor has code for": (
        "torch._dispatch.python.enable_python_dispatcher",
        "torch._inductor.codegen.common.pointwise_overrides_data",
        "torch._inductor.config",
        "torch._inductor.decomposition.conv1d_to_conv2d",
        "torch._inductor.decomposition.select_decomp_table",
        "torch._inductor.lowering.lowerings",
        "torch.utils._python_dispatch.TorchDispatchMode",
    ),
}
NAMES = sorted(name for names in PRIVATE.values() for name in names)
# Attributes of torch's and ExecuTorch's objects that etdev/upstream/ reads or writes.
ATTRIBUTES = {
    "_report",
    "_loader",  # has the source of code that torch generated
    # EdgeCompileConfig
    *("_check_ir_validity", "_core_aten_ops_exception_list", "_skip_dim_order"),
    *("_etrecord", "_named_data_store"),  # EdgeProgramManager
    *("_buffers", "_byte_size", "_pte_data"),  # ExecutorchProgramManager and its Cord
    *("_can_decompose", "_dispatch_get_registrations_for_dispatch_key"),
    *("_generate_edge_program", "_get_aten_to_edge_passes", "_instruction_id", "_tensor_data"),
    *("_collect_all_valid_cia_ops_for_namespace", "_is_preservable_cia_op"),
    "_override_composite_implicit_decomp",
    "_alias_inplace_result_specs",
    *("_embedding_bag", "_embedding_bag_forward_only"),  # what embedding_bag calls
    *("_expr", "_is_param", "_op", "_schema", "_set_replacement", "_version"),  # torch
}
# Where the host reads one elsewhere, and why it can't be helped.
ACCEPTED = {
    "lowered.py": {"_repr_html_"},  # IPython's name for it
    "schema/displayed.py": {"_repr_mimebundle_"},  # IPython's, too
    "delegate/cache/canonical.py": {"_fields"},  # Python's own, of named tuples
    "__main__.py": {"_exit"},  # Python's own, of os
    "cli/interruption.py": {"_exit"},
    "app/eager.py": {"_reference"},  # of another object of its own class
    "quirks/sizes.py": {"_check"},  # torch.export's documentation names it
    "portable/decompositions/places.py": {"_check"},
    "delegate/executors/processes.py": {"_logging"},  # torch's documentation has a page about it
}


def private(name):
    """Whether a dotted name goes through something private of torch or ExecuTorch."""
    first, *parts = name.split(".")
    return first in ("torch", "executorch") and any(map(hidden, parts))


def hidden(name):
    return name.startswith("_") and not name.startswith("__")


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
        # Some are documented, in spite of their names.
        known = ("torch._check", "torch._logging")
        if name.count(".") == 1 and name.startswith("torch._") and name not in known:
            yield name


def attributes(tree):
    """The private names that a file reads, writes or passes on, other than its own."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and not _is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from (keyword.arg or "" for keyword in node.keywords)
            if ast.unparse(node.func) in ("getattr", "hasattr", "setattr"):
                yield from (str(a.value) for a in node.args[1:2] if isinstance(a, ast.Constant))


def _is_own(owner):
    """Whether attributes of it are a class's own, or ops, whose names may begin so."""
    text = ast.unparse(owner)
    return text in ("self", "cls", "super()") or text.startswith(("torch.ops.", "aten", "edge_ops"))


def trees(*globs):
    files = [file for glob in globs for file in sorted(ROOT.glob(glob))]
    return {file: ast.parse(file.read_text("utf-8")) for file in files}


def test_what_is_private_upstream_and_used_here_is_listed():
    files = trees("etdev/upstream/**/*.py", "plugins/*/etdev_*/**/*.py")
    used = {n for t in files.values() for n in (*imported(t), *reached(t)) if private(n)}
    assert (sorted(used - set(NAMES)), sorted(set(NAMES) - used)) == ([], [])
    host = trees("etdev/upstream/**/*.py").values()
    read = {name for tree in host for name in attributes(tree) if hidden(name)}
    read -= {name.rpartition(".")[2] for name in NAMES}
    assert (sorted(read - ATTRIBUTES), sorted(ATTRIBUTES - read)) == ([], [])


def test_the_host_has_all_of_it_in_one_place():
    found = {}
    for file, tree in trees("etdev/**/*.py").items():
        place = file.relative_to(ROOT / "etdev").as_posix()
        names = {name for name in (*imported(tree), *reached(tree)) if private(name)}
        names |= {name for name in attributes(tree) if hidden(name)} - ACCEPTED.get(place, set())
        if names and not place.startswith("upstream/"):
            found[place] = sorted(names)
    assert found == {}


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


def test_a_decomposition_is_the_same_without_kernels_for_every_op(monkeypatch):
    class Net(torch.nn.Module):
        def forward(self, x):
            y = torch.nn.functional.interpolate(torch.nn.functional.silu(x @ x), scale_factor=2)
            return torch.nn.functional.scaled_dot_product_attention(y, y, y).softmax(-1)

    overridden = []
    override = exported_program._override_composite_implicit_decomp
    monkeypatch.setattr(
        exported_program,
        "_override_composite_implicit_decomp",
        lambda table: overridden.append(len(table)) or override(table),
    )
    program = torch.export.export(Net(), (torch.randn(1, 2, 4, 4),))
    table = dict(executorch_table())
    del table[torch.ops.aten.silu.default], table[torch.ops.aten.matmul.default]
    before = program.run_decompositions(table)
    with quick_decompositions():
        after = program.run_decompositions(table)
    assert after.graph_module.code == before.graph_module.code
    assert "silu" in after.graph_module.code
    assert "matmul" in after.graph_module.code
    # A call has more than one trace; hundreds of ops that torch would register kernels for.
    assert max(overridden[len(overridden) // 2 :]) * 5 < overridden[0]


def test_an_op_that_is_registered_between_two_lowerings_is_decomposed():
    class Net(torch.nn.Module):
        def forward(self, x):
            return torch.ops.between.doubled(x)

    with quick_decompositions():
        torch.export.default_decompositions().items()
    with torch.library._scoped_library("between", "DEF") as library:
        library.define("doubled(Tensor x) -> Tensor")
        library.impl("doubled", lambda x: x + x, "CompositeImplicitAutograd")
        program = torch.export.export(Net(), (torch.ones(2),))
        with quick_decompositions():
            kept = program.run_decompositions({})
            pieces = program.run_decompositions()
    assert [n.name for n in kept.graph.nodes] == ["x", "doubled", "output"]
    assert [n.name for n in pieces.graph.nodes] == ["x", "add", "output"]


def test_a_pte_reads_back_into_the_schema():
    plans = schema.ExecutionPlan.__dataclass_fields__
    assert {"delegates", "chains", "non_const_buffer_sizes", "non_const_buffer_device"} <= set(
        plans
    )
