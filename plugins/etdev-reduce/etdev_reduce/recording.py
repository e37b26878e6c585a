"""Recordings: an exported program, and the values of its nodes in some calls."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from functools import cached_property
from operator import getitem
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node
from torch.utils import _pytree as pytree

from etdev import EtdevError
from etdev.app import EagerMethod
from etdev.graph import op_name
from etdev_reduce.failure import first_line


# Not slotted, for its cached members.
@define(eq=False, slots=False)
class Recording:
    """An exported program, called in eager PyTorch, each time in the state of the last call.

    An EtdevError says that eager PyTorch can't run it.

    Args:
        program: The program.
        inputs: The flat inputs of each call.
        inner: Numbers of the calls whose inner values are kept, beside inputs and weights.
        drawn: For each call, whether it is far from the example.
        prefix: What the keys of its values begin with.
    """

    program: ExportedProgram
    inputs: Sequence[Sequence[Any]]
    inner: Container[int] = (0,)
    drawn: Sequence[bool] = (False,)
    prefix: str = ""
    # Where each dense weight lies in memory, by name, and the names of those that calls write to.
    places: dict[str, int] = field(factory=dict, init=False)
    written: frozenset[str] = field(init=False)
    # Names of the other weights, and of nodes that are computed from these alone.
    constants: set[str] = field(factory=set, init=False)
    # The values by name of the node, by number of the call.
    calls: dict[int, Mapping[str, Any]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        own = self.module.named_parameters(remove_duplicate=False)
        held = {**dict(own), **dict(self.module.named_buffers(remove_duplicate=False))}
        dense = {name: value for name, value in held.items() if value.layout == torch.strided}
        self.places = {name: value.data_ptr() for name, value in dense.items()}
        self.written = EagerMethod.written(self.program) & frozenset(held)
        for name in self.written:
            path, _, last = name.rpartition(".")
            owner = self.module.get_submodule(path)
            delattr(owner, last)
            # The caller's stays as it is.
            owner.register_buffer(last, held[name].detach().clone())
        for node in self.module.graph.nodes:
            inputs = {n.name for n in node.all_input_nodes}
            is_weight = node.op == "get_attr" and str(node.target) not in self.written
            if is_weight or (inputs and inputs <= self.constants):
                self.constants.add(node.name)
        for number, given in enumerate(self.inputs):
            recorder = _Recorder(self, number in self.inner)
            try:
                with torch.no_grad():
                    recorder.run(*map(_copied, given), enable_io_processing=False)
            except Exception as error:
                what = f"can't be run in eager PyTorch: {first_line(error)}"
                raise EtdevError("the model", what, "give inputs that it takes") from error
            seen = recorder.seen.items()
            self.calls[number] = {name: value for name, value in seen if _is_readable(value)}

    @cached_property
    def module(self) -> GraphModule:
        """The program, with weights and buffers as its attributes.

        It has no items of results that nobody reads, which a case would return.
        """
        module = self.program.module(check_guards=False)
        for node in module.graph.find_nodes(op="call_function", target=getitem):
            if not node.users:
                module.graph.erase_node(node)
        return module

    @cached_property
    def nodes(self) -> tuple[Node, ...]:
        """The nodes that compute something."""
        return tuple(node for node in self.module.graph.nodes if node.op == "call_function")

    @cached_property
    def returned(self) -> frozenset[Node]:
        """The nodes whose values the program returns."""
        return frozenset(self.module.graph.output_node().all_input_nodes)

    @cached_property
    def groups(self) -> list[tuple[Node, ...]]:
        """The nodes in groups that are cut at first as one.

        An op is in one group with its dequantised inputs, its quantised output and the items of its
        result, so that patterns which a backend takes as a whole stay whole.
        """
        group: dict[Node, list[Node]] = {}
        for node in self.nodes:
            inputs = [n for n in node.all_input_nodes if n in group]
            name = short_name(node)
            joins = inputs and (name == "getitem" or name.startswith("quantize_per"))
            own = group[inputs[0]] if joins else []
            own.append(node)
            group[node] = own
            for given in inputs:
                is_private = short_name(given).startswith("dequantize_per")
                if is_private and len(given.users) == 1 and group[given] is not own:
                    own[:0] = group[given]
                    group.update(dict.fromkeys(group[given], own))
        # By their last nodes, since weights are dequantised long before they are read.
        found = {id(own): tuple(own) for own in reversed(group.values())}
        return [*reversed(found.values())]

    def key(self, name: str, call: int) -> str:
        """Return the key under which sources read the value of a node in a call."""
        return self.prefix + (name if name in self.constants else f"{name}_of_call_{call}")


class _Recorder(Interpreter):
    """An interpreter that keeps a copy of each value which a later op may write to."""

    def __init__(self, recording: Recording, inner: bool) -> None:
        super().__init__(recording.module)
        self.seen: dict[str, Any] = {}
        self._constants, self._inner = recording.constants, inner
        self._known = next(iter(recording.calls.values()), {})

    def run_node(self, n: Node) -> Any:
        """Run a node, and keep its result, in an order that the runtime takes as an input."""
        value = super().run_node(n)
        if n.name in self._constants and (n.op == "get_attr" or n.name in self._known):
            seen = self._known.get(n.name, value)
            self.seen[n.name] = pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, seen)
        elif n.op in ("placeholder", "get_attr"):
            self.seen[n.name] = _copied(value)
        elif self._inner and n.op == "call_function":
            self.seen[n.name] = pytree.tree_map_only(torch.Tensor, _ordered, value)
        return value


def _is_readable(value: Any) -> bool:
    """Return False for a value inside of a vmap, which nothing behind it can read."""
    try:
        pytree.tree_map_only(torch.Tensor, torch.Tensor.detach, value)
    except RuntimeError:
        return False
    return True


def _copied(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return value.detach().clone(memory_format=torch.preserve_format)


def _ordered(value: torch.Tensor) -> Any:
    if value.dim() == 4 and value.is_contiguous(memory_format=torch.channels_last):
        return _copied(value)
    return _copied(value).contiguous()


def short_name(node: Node) -> str:
    """Return the name of the op that a node calls, without its namespace and overload."""
    return op_name(node).split(".")[-2:][0]
