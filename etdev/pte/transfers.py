"""Copies between devices in an emitted program, each made once or not at all.

ExecuTorch's PropagateDevicePass puts a copy at every border of a delegate that is on a device. The
pass here runs right after it. It copies a value once that several delegates of one device read, and
leaves out a copy from or to the caller if the caller makes it and no kernel needs the value on the
host.
"""

from __future__ import annotations

import copy
import operator
import warnings

import torch
from attrs import frozen
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.schema import DeviceType
from executorch.exir.tensor import TensorSpec
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from etdev.errors import DeviceError, EtdevWarning
from etdev.graph.nodes import delegate_device
from etdev.schema.device import CPU, Device
from etdev.upstream.operators import D2H, H2D


@frozen
class Skips:
    """Copies that the caller of one method makes, so that the program leaves them out.

    Args:
        inputs: The caller passes inputs on the device if only delegates of one device read them.
        outputs: The caller takes outputs on the device if no kernel reads them.
    """

    inputs: bool = False
    outputs: bool = False


class MergeCopies(PassBase):
    """A pass that makes each device copy once, then runs the pass that it replaces."""

    def __init__(self, method: str, then: PassBase, skips: Skips) -> None:
        super().__init__()
        self._method, self._then, self._skips = method, then, skips

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Rewrite the copies in place."""
        _complete_single_outputs(graph_module)
        _merge(graph_module)
        if self._skips.inputs:
            _skip_inputs(graph_module, self._method)
        if self._skips.outputs:
            _skip_outputs(graph_module)
        graph_module.recompile()
        return self._then(graph_module)


def check_labels(method: str, program: ExportedProgram, skips: Skips) -> None:
    """Reject a tensor that needs two device labels when memory is not planned per device."""
    who, cure = f"method {method}", "leave enable_non_cpu_memory_planning on"
    if skips != Skips():
        raise DeviceError(who, "copies can't be skipped without device memory planning", cure)
    for node in program.graph.nodes:
        labels = {device for device in map(_label, (node, *node.users)) if device is not None}
        if isinstance(node.meta.get("val"), torch.Tensor) and len(labels) > 1:
            named = " and ".join(sorted(map(str, labels)))
            what = f"{node.name} is needed on {named}, and without device memory planning it can "
            what += "have one label only, with which one of them would read memory of another"
            raise DeviceError(who, what, cure)


def _complete_single_outputs(graph_module: GraphModule) -> None:
    """Copy the output of delegates with a single output back to the host.

    ExecuTorch looks for getitems to do that, and a delegate that was lowered by itself and exported
    again with its caller has none.
    """
    graph = graph_module.graph
    for call in graph.find_nodes(op="call_function", target=executorch_call_delegate):
        spec = call.meta.get("spec")
        if not isinstance(spec, TensorSpec) or spec.device == DeviceType.CPU:
            continue
        with graph.inserting_after(call):
            back = graph.call_function(D2H, (call,))
        # ExecuTorch's next pass copies `tensor_meta` unread, so any value will do.
        back.meta = {"val": call.meta["val"], "spec": copy.copy(spec), "tensor_meta": None}
        back.meta["spec"].init_mem_planning_fields()
        back.meta["spec"].device, back.meta["spec"].device_index = DeviceType.CPU, 0
        call.replace_all_uses_with(back, delete_user_cb=lambda user, back=back: user is not back)
        for user in list(back.users):
            if user.target is H2D and _place(user.meta["spec"]) == _place(spec):
                user.replace_all_uses_with(call)
                graph.erase_node(user)
        if not back.users:
            graph.erase_node(back)


def _place(spec: TensorSpec) -> tuple[DeviceType, int]:
    return spec.device, spec.device_index


def _device(node: Node) -> Device:
    kind, index = _place(node.meta["spec"])
    return Device(kind.name.lower(), index)


def _merge(graph_module: GraphModule) -> None:
    first: dict[tuple[Node, DeviceType, int], Node] = {}
    for node in graph_module.graph.find_nodes(op="call_function", target=H2D):
        key = (node.all_input_nodes[0], *_place(node.meta["spec"]))
        earlier = first.setdefault(key, node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph_module.graph.erase_node(node)


def _skip_inputs(graph_module: GraphModule, method: str) -> None:
    for node in graph_module.graph.find_nodes(op="call_function", target=H2D):
        source = node.all_input_nodes[0]
        spec: TensorSpec = source.meta["spec"]
        if source.op != "placeholder" or spec.const:
            continue
        if len(source.users) != 1:
            what = f"input {source.name} is still copied to {_device(node)}"
            why = "it is read on another device, too, so its caller has to pass it on the CPU"
            warnings.warn(f"method {method}: {what}: {why}", EtdevWarning, stacklevel=2)
            continue
        spec.device, spec.device_index = _place(node.meta["spec"])
        node.replace_all_uses_with(source)
        graph_module.graph.erase_node(node)


def _skip_outputs(graph_module: GraphModule) -> None:
    for node in graph_module.graph.find_nodes(op="call_function", target=D2H):
        # If a kernel reads the value on the host, the copy is needed anyway.
        if all(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph_module.graph.erase_node(node)


def _label(node: Node) -> Device | None:
    """Return the device of a node's inputs and outputs; None if it may be any."""
    if node.op != "call_function":
        return None
    if node.target is operator.getitem:
        return _label(node.all_input_nodes[0])
    return delegate_device(node) if node.target is executorch_call_delegate else CPU
