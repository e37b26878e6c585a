"""The reasons why an ExecuTorch partitioner rejects nodes, as far as it gives them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any
from unittest.mock import patch

from attrs import define, field
from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter
from torch.fx import Node
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from etdev.schema.claims import Refusal

# Names of the arguments that the listeners take.
_NAMES = ("node", "reason", "graph_module", "operator_support")


@define(eq=False)
class Rejections:
    """The reasons that were given while a partitioner was asked, by the name of the node.

    Args:
        partitioner: Name of its class.
    """

    partitioner: str
    _words: dict[str, str] = field(factory=dict)
    _supports: dict[str, str] = field(factory=dict)

    def refusal(self, node: str) -> Refusal:
        """Return why a node has no tag: by the partitioner, its operator support, or unknown."""
        if words := self._words.get(node):
            return Refusal(node, "partitioner", words)
        if support := self._supports.get(node):
            return Refusal(node, "support", f"{support} does not support it")
        cure = "a Partitioner gives one with ExecuTorch's WhyNoPartition"
        return Refusal(node, "untagged", f"{self.partitioner} gives no reason; {cure}")

    @contextmanager
    def heard(self) -> Iterator[None]:
        """Collect reasons from ExecuTorch's helpers and torch's operator support."""
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

        stack.enter_context(patch.object(support, "is_node_supported", is_node_supported))


def _listen(stack: ExitStack, kind: type, name: str, listener: Callable[..., None]) -> None:
    """Pass the arguments of each call of a method to a listener."""
    original = getattr(kind, name)

    def method(*arguments: Any, **named: Any) -> Any:
        # The method itself refuses wrong arguments.
        with suppress(Exception):
            listener(*arguments, **{key: named[key] for key in named if key in _NAMES})
        return original(*arguments, **named)

    stack.enter_context(patch.object(kind, name, method))
