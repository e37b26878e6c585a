"""Transfers: device copies in the program that is emitted, each made once or not at all.

ExecuTorch's PropagateDevicePass puts a copy at every border of a delegate that is on a device. This
runs right after it: a value that several delegates of one device read is copied there once, and a
copy from or to the caller is left out where the caller asked for it and nothing else needs the
value on the host.
"""

from __future__ import annotations

import copy

from attrs import frozen
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.schema import DeviceType
from executorch.exir.tensor import TensorSpec
from torch.fx import GraphModule, Node
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from etdev.upstream.device_copies import D2H, H2D


@frozen
class Skips:
    """Copies that the caller of one method makes, so that the program leaves them out.

    Args:
        inputs: The caller passes inputs on the device, where only delegates of one device read
            them.
        outputs: The caller takes outputs on the device, where nothing else reads them.
    """

    inputs: bool = False
    outputs: bool = False


class MergeCopies(PassBase):
    """Makes each device copy once; then runs the pass in whose place it was put.

    Args:
        then: The pass that ExecuTorch would have run in this place.
        skips: Which copies to leave out.
    """

    def __init__(self, then: PassBase, skips: Skips) -> None:
        super().__init__()
        self._then = then
        self._skips = skips

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Rewrites the copies in place."""
        _complete_single_outputs(graph_module)
        _merge(graph_module)
        if self._skips.inputs:
            _skip_inputs(graph_module)
        if self._skips.outputs:
            _skip_outputs(graph_module)
        graph_module.recompile()
        return self._then(graph_module)


def _complete_single_outputs(graph_module: GraphModule) -> None:
    """Copy back what a delegate with a single output returns.

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
            if user.target is H2D and _same_device(user.meta["spec"], spec):
                user.replace_all_uses_with(call)
                graph.erase_node(user)
        if not back.users:
            graph.erase_node(back)


def _same_device(one: TensorSpec, other: TensorSpec) -> bool:
    return (one.device, one.device_index) == (other.device, other.device_index)


def _merge(graph_module: GraphModule) -> None:
    first: dict[tuple[Node, DeviceType, int], Node] = {}
    for node in graph_module.graph.find_nodes(op="call_function", target=H2D):
        spec: TensorSpec = node.meta["spec"]
        source = node.all_input_nodes[0]
        earlier = first.setdefault((source, spec.device, spec.device_index), node)
        if earlier is not node:
            node.replace_all_uses_with(earlier)
            graph_module.graph.erase_node(node)


def _skip_inputs(graph_module: GraphModule) -> None:
    for node in graph_module.graph.find_nodes(op="call_function", target=H2D):
        source = node.all_input_nodes[0]
        spec: TensorSpec = source.meta["spec"]
        if source.op != "placeholder" or len(source.users) != 1 or spec.const:
            continue
        spec.device = node.meta["spec"].device
        spec.device_index = node.meta["spec"].device_index
        node.replace_all_uses_with(source)
        graph_module.graph.erase_node(node)


def _skip_outputs(graph_module: GraphModule) -> None:
    for node in graph_module.graph.find_nodes(op="call_function", target=D2H):
        # A host kernel that reads the value too needs it on the host; then so does the caller.
        if all(user.op == "output" for user in node.users):
            node.replace_all_uses_with(node.all_input_nodes[0])
            graph_module.graph.erase_node(node)
