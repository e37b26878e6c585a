"""Rejections: why an ExecuTorch partitioner leaves nodes, as far as it says so."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

from attrs import define, field
from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from etdev.schema.claims import Refusal


@define(eq=False)
class Rejections:
    """What was said of nodes while a partitioner was asked, by the name of the node.

    Args:
        partitioner: What it calls itself.
    """

    partitioner: str
    _words: dict[str, str] = field(factory=dict)
    _supports: dict[str, str] = field(factory=dict)

    def refusal(self, node: str) -> Refusal:
        """Why a node has no tag: the partitioner's words, else that its operator support does not
        have it, else that nothing was said."""
        if words := self._words.get(node):
            return Refusal(node, "partitioner", words)
        if support := self._supports.get(node):
            return Refusal(node, "support", f"{support} does not support it")
        cure = "a Partitioner gives one with ExecuTorch's WhyNoPartition"
        return Refusal(node, "untagged", f"{self.partitioner} gives no reason; {cure}")

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Listen to all that can say why: two helpers of ExecuTorch's, whose words otherwise go to
        debug logs at most, and the operator support of torch's partitioner."""
        with ExitStack() as stack:
            _listen(stack, WhyNoPartition, "__call__", self._said)
            _listen(stack, WhyNoPartitionReporter, "report_reject", self._said)

            def made(_: object, graph_module: object, operator_support: Any, *__: Any) -> None:
                self._watch(stack, operator_support)

            _listen(stack, CapabilityBasedPartitioner, "__init__", made)
            yield

    def _said(self, _: object, node: Node, reason: str) -> None:
        text = " ".join(str(reason).split())
        self._words.setdefault(node.name, text)

    def _watch(self, stack: ExitStack, support: OperatorSupportBase) -> None:
        asked = support.is_node_supported

        def is_node_supported(submodules: Any, node: Node) -> bool:
            supported = asked(submodules, node)
            if not supported:
                self._supports[node.name] = type(support).__name__
            return supported

        _replace(stack, support, "is_node_supported", is_node_supported)


def _listen(stack: ExitStack, kind: type, name: str, told: Callable[..., None]) -> None:
    """Have something told the arguments of each call of a method."""
    original = getattr(kind, name)

    def method(*arguments: Any, **named: Any) -> Any:
        # A call that can't be understood is for the method to judge.
        with suppress(Exception):
            told(*arguments, **{key: named[key] for key in named if key in _NAMES})
        return original(*arguments, **named)

    _replace(stack, kind, name, method)


# Arguments of those methods that are of interest here.
_NAMES = ("node", "reason", "graph_module", "operator_support")


def _replace(stack: ExitStack, place: Any, name: str, value: object) -> None:
    """Give an attribute another value until the stack is closed."""
    before = vars(place).get(name)
    setattr(place, name, value)
    stack.callback(setattr, place, name, before) if before else stack.callback(delattr, place, name)
