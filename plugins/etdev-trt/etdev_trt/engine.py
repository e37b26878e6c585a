"""The fields of an engine node, which is a TensorRT engine in a graph.

Read from the graph alone. torch-tensorrt writes the fields of an engine as the arguments of its
placeholder op, in the order of its `SerializedInfoIndex`; newer versions add some at the end. One
of them is a pickle, which is never loaded.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from typing import Any
from weakref import WeakKeyDictionary

from attrs import frozen
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev import Device
from etdev.errors import DeviceError

_PLACEHOLDER = "tensorrt::no_op_placeholder_for_execute_engine"
# The op that takes an engine object, whose fields the graph doesn't show.
_OBJECT = "tensorrt::execute_engine"
_NAME, _DEVICE, _BYTES, _INPUTS, _OUTPUTS, _NEEDS_ALLOCATOR, _ALIASED = 1, 2, 3, 4, 5, 9, 12
_SEPARATOR = "%"


@frozen(eq=False)
class Engine:
    """One engine.

    Args:
        node: The node that runs it; its first argument is the list of the engine's inputs.
        fields: Its fields in the graph; empty for `execute_engine`.
    """

    node: Node
    fields: tuple[Any, ...]

    @property
    def name(self) -> str:
        """Its name in torch-tensorrt, for messages."""
        return self._text(_NAME)

    @property
    def device_field(self) -> str:
        """The device field as it is: `1%9%0%0%NVIDIA H200`, the index of the GPU first."""
        return self._text(_DEVICE)

    @property
    def constant(self) -> str | None:
        """Name of the graph input that holds the engine's bytes."""
        source = self.fields[_BYTES] if len(self.fields) > _BYTES else None
        return source.name if isinstance(source, Node) and source.op == "placeholder" else None

    def device(self) -> Device | None:
        """Return the GPU it was built for; None if a label can't hold the index."""
        try:
            return Device("cuda", self._index())
        except (DeviceError, ValueError):
            return None

    def _index(self) -> int:
        """Return the index of the GPU, read as torch-tensorrt reads it for the payload.

        It takes `+1`, ` 1` and `1_0`, and what is not a number for 0.
        """
        return int(self.device_field.split(_SEPARATOR)[0])

    def fault(self) -> tuple[str, str] | None:
        """Return why no ExecuTorch runtime can run it, and the cure; None if a runtime can."""
        if self._text(_NEEDS_ALLOCATOR) == "1":
            return (
                "needs an output allocator, because the shape of an output depends on the data",
                "compile the model with fallback_data_dependent_ops=True",
            )
        if not self.fields:
            return None
        if (gpu := self._impossible_gpu()) is not None:
            return f"was built for GPU {gpu}, which can't exist", "compile the model again"
        inputs, outputs = self._names(_INPUTS), self._names(_OUTPUTS)
        given: Any = self.node.args[0]
        # The runtime binds by position, so a missing tensor would shift all that follow.
        if len(set(given)) != len(inputs):
            return (
                f"has {len(inputs)} inputs and is given {len(set(given))} tensors",
                "give it a tensor of its own for each input",
            )
        getitems = sorted(user for user in self.node.users if user.target is operator.getitem)
        read = [getitem.args[1] for getitem in getitems]
        if read != list(range(len(outputs))):
            # torch-tensorrt's own export completes such a program after ExecuTorch planned its
            # copies (pytorch/TensorRT#4667); without that, the updates would be lost.
            written = self._text(_ALIASED)
            return (
                f"has {len(outputs)} outputs, and {read} are read, in this order",
                "read all of them in their order, or compile the model without the others"
                + (", and leave zero_copy_kv out" if written else ""),
            )
        return None

    def _impossible_gpu(self) -> str | None:
        """Return the index of a GPU that would be in the payload and that no label can hold."""
        try:
            index = self._index()
        except ValueError:
            return None
        return None if self.device() else str(index)[:20]

    def _text(self, index: int) -> str:
        value = self.fields[index] if index < len(self.fields) else ""
        return value if isinstance(value, str) else ""

    def _names(self, index: int) -> list[str]:
        return [name for name in self._text(index).split(_SEPARATOR) if name]


# Kept by program, because every partition asks again; the graph that a plugin sees doesn't change.
_KNOWN: WeakKeyDictionary[ExportedProgram, dict[str, Engine]] = WeakKeyDictionary()


def engines(program: ExportedProgram) -> dict[str, Engine]:
    """Return the engines of a method by node name in graph order, without those in branches."""
    if program not in _KNOWN:
        _KNOWN[program] = {e.node.name: e for e in _engines(program.graph_module)}
    return _KNOWN[program]


def engines_in_branches(program: ExportedProgram) -> Iterator[Engine]:
    """Engines inside `cond`, `map` and `while_loop`, but not inside foreign delegates."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule) and module is not program.graph_module:
            yield from _engines(module)


def holds_objects(program: ExportedProgram) -> bool:
    """Return True if a program has engine objects, as torch-tensorrt's exporter leaves them."""
    return any(_schema(node) == _OBJECT for node in program.graph.nodes)


def _engines(module: GraphModule) -> Iterator[Engine]:
    for node in module.graph.nodes:
        if _schema(node) == _PLACEHOLDER:
            yield Engine(node, tuple(node.args[1:]))
        elif _schema(node) == _OBJECT:
            yield Engine(node, ())


def _schema(node: Node) -> str | None:
    """Name of a node's op, the same in both dialects: the edge dialect wraps the op."""
    return getattr(getattr(node.target, "_schema", None), "name", None)
