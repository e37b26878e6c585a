"""All calls into torch-tensorrt; only `machine` imports it too, to see if it loads."""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature, InputKind
from torch.fx import Graph, GraphModule, Node

from etdev import Device
from etdev.errors import LoweringError

Options = Mapping[str, Any]
_PRECISIONS = {"fp16": torch.float16, "bf16": torch.bfloat16}


def with_placeholders(program: ExportedProgram) -> ExportedProgram:
    """Return a copy of a program in which placeholders hold the bytes of the engines.

    torch-tensorrt does the same before it hands a program to ExecuTorch.
    """
    try:
        from torch_tensorrt.executorch import _export_utils as steps
    except ImportError:
        return _with_placeholders_2_13(program)
    from torch_tensorrt.dynamo._exporter import _declare_aliased_kv_mutations_on_ep

    copied = copied_back(program)
    staged = steps.stage_exported_program(program)
    declared = _declare_aliased_kv_mutations_on_ep(staged, copyback_buffers=copied)
    replaced: ExportedProgram = steps.replace_execute_engine(declared)
    return replaced


def copied_back(program: ExportedProgram) -> list[str]:
    """Return buffers whose new values a retraced program returns after its own outputs.

    torch-tensorrt 2.14 leaves it to the caller to declare them as mutated. A program of its own
    exporter has the same list, and a mark that it is done.
    """
    try:
        from torch_tensorrt.executorch._export import _copyback_buffers_by_method
    except ImportError:
        return []
    buffers: list[str] = _copyback_buffers_by_method(program, ("forward",))["forward"]
    return buffers


def _with_placeholders_2_13(program: ExportedProgram) -> ExportedProgram:
    from torch_tensorrt._compile import _replace_execute_engine_for_executorch

    graph = Graph()
    graph.output(graph.graph_copy(program.graph, {}))
    # Copying renames nodes that are named like a builtin, such as `sum`.
    for node, original in zip(graph.nodes, program.graph.nodes, strict=True):
        node.name, node.meta = original.name, dict(original.meta)
    signature = program.graph_signature
    staged: ExportedProgram = program._update(
        GraphModule(program.graph_module, graph),
        ExportGraphSignature([*signature.input_specs], [*signature.output_specs]),
        state_dict=dict(program.state_dict),
        constants=dict(program.constants),
    )
    _replace_execute_engine_for_executorch(staged)
    _drop_unused_objects(staged)
    return staged


def _drop_unused_objects(program: ExportedProgram) -> None:
    """2.13 leaves the engine objects among the inputs."""
    inputs = {node.name: node for node in program.graph.find_nodes(op="placeholder")}
    signature = program.graph_signature
    for spec in [*signature.input_specs]:
        node = inputs[spec.arg.name]
        if spec.kind == InputKind.CUSTOM_OBJ and not node.users:
            program.graph.erase_node(node)
            signature.input_specs.remove(spec)
            program.constants.pop(str(spec.target), None)


def converts(options: Options) -> Callable[[Node], bool]:
    """Return the check whether torch-tensorrt has a converter that takes an ATen node as it is."""
    converters = _converters(options)
    return lambda node: _accepted(lambda: node in converters)


def _accepted(check: Callable[[], bool]) -> bool:
    """Return the answer of a torch-tensorrt check about a node; False if the check fails.

    That of sort reads the dimension, which a call may leave out.
    """
    try:
        return check()
    except Exception:
        return False


def decompositions() -> Container[Any]:
    """Return the ops that torch-tensorrt decomposes before it converts them."""
    from torch_tensorrt.dynamo.lowering import get_decompositions

    table: Container[Any] = get_decompositions()
    return table


def blocks(module: GraphModule, options: Options, excluded: Container[str]) -> set[str]:
    """Names of the ATen nodes that torch-tensorrt's own partitioner would put into engines.

    Args:
        module: ATen graph; it is not changed.
        options: The plugin's build options.
        excluded: Names of nodes that no engine may hold.
    """
    from torch_tensorrt.dynamo._defaults import MIN_BLOCK_SIZE
    from torch_tensorrt.dynamo.partitioning import _adjacency_partitioner as partitioning

    _converters(options)

    class Support(partitioning.OpSupportTester):  # type: ignore[misc]
        def is_node_supported(self, submodules: Any, node: Node) -> bool:
            supported = super().is_node_supported
            return node.name not in excluded and _accepted(lambda: supported(submodules, node))

    partitioner = partitioning.TRTPartitioner(
        module,
        Support(_torch_ops(options)),
        min_block_size=options.get("min_block_size", MIN_BLOCK_SIZE),
    )
    subgraphs = partitioner.remove_small_acc_subgraphs(partitioner.put_nodes_into_subgraphs())
    return {node.name for subgraph in subgraphs if subgraph.is_acc for node in subgraph.nodes}


def build(program: ExportedProgram, options: Options, device: Device) -> bytes:
    """Build one engine of an ATen program, as the payload of a delegate.

    Args:
        program: What the engine computes; its user inputs are the delegate's, in this order.
        options: The plugin's build options.
        device: The GPU to build it on and for.

    Raises:
        LoweringError: torch-tensorrt can't build it as a single engine.
    """
    from torch_tensorrt.dynamo import compile as compile_program
    from torch_tensorrt.dynamo.partitioning import construct_submodule_inputs

    placed = _placed(program, device)
    inputs = construct_submodule_inputs(placed.module())
    compiled = compile_program(placed, arg_inputs=inputs, **_arguments(options, device))
    return _payload(compiled, device)


def _payload(compiled: GraphModule, device: Device) -> bytes:
    from torch_tensorrt.executorch.serialization import (
        TensorRTBlobMetadata,
        TensorRTIOBinding,
        serialize_engine,
    )

    call = _only_engine(compiled)
    engine: Any = compiled.get_submodule(str(call.target))
    if engine.requires_output_allocator or getattr(engine, "aliased_io", None):
        raise _failed("the engine needs an output allocator or writes to its inputs")
    names = dict(zip(call.args, engine.input_binding_names, strict=True))
    inputs = list(compiled.graph.find_nodes(op="placeholder"))
    if set(inputs) != names.keys():
        raise _failed("the engine does not read all inputs of its partition")
    bindings = [TensorRTIOBinding(name=names[node], is_input=True) for node in inputs]
    for result in compiled.graph.output_node().all_input_nodes:
        index = 0 if result is call else result.args[1]
        bindings.append(TensorRTIOBinding(name=engine.output_binding_names[index], is_input=False))
    metadata = TensorRTBlobMetadata(
        io_bindings=bindings,
        hardware_compatible=engine.hardware_compatible,
        device_id=device.index,
    )
    return bytes(serialize_engine(engine.serialized_engine, metadata))


def _only_engine(compiled: GraphModule) -> Node:
    """Return the node that runs the one engine that a partition became."""
    calls = [node for node in compiled.graph.nodes if node.op.startswith("call_")]
    engines = [node for node in calls if node.op == "call_module"]
    rest = [node for node in calls if node not in engines and engines[:1] != node.all_input_nodes]
    if len(engines) != 1 or rest:
        outside = ", ".join(dict.fromkeys(str(node.target) for node in rest)) or "nothing"
        raise _failed(f"a partition became {len(engines)} engines, with {outside} left outside")
    engine: Node = engines[0]
    return engine


def _failed(what: str) -> LoweringError:
    return LoweringError("torch-tensorrt", what, "leave ops out with torch_executed_ops")


def _placed(program: ExportedProgram, device: Device) -> ExportedProgram:
    from torch.export.passes import move_to_device_pass

    return move_to_device_pass(program, str(device))


def _converters(options: Options) -> Any:
    """torch-tensorrt's converters, set to the options; the table is global to the process."""
    from torch_tensorrt.dynamo._settings import CompilationSettings
    from torch_tensorrt.dynamo.conversion import DYNAMO_CONVERTERS

    # Which device doesn't matter; the default would ask the driver.
    settings = CompilationSettings(**_arguments(options, Device("cuda")))
    DYNAMO_CONVERTERS.set_compilation_settings(settings)
    return DYNAMO_CONVERTERS


def _arguments(options: Options, device: Device) -> dict[str, Any]:
    """Return the options under torch-tensorrt's names."""
    from torch_tensorrt import Device as Gpu

    arguments = dict(options)
    precision = arguments.pop("precision", None)
    if precision is not None:
        arguments["enable_autocast"] = True
        arguments["autocast_low_precision_type"] = _PRECISIONS[precision]
    return {
        **arguments,
        "device": Gpu(gpu_id=device.index),
        "torch_executed_ops": _torch_ops(options),
        # ExecuTorch's runtime has no output allocator for ops whose shapes depend on the data.
        "fallback_data_dependent_ops": True,
        "min_block_size": 1,
    }


def _torch_ops(options: Options) -> set[str]:
    return {f"torch.ops.{name}" for name in options.get("torch_executed_ops", ())}
