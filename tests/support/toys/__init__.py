"""Toy plugins for the tests: they claim by op name, and compile with the real XNNPACK backend."""

from __future__ import annotations

from typing import Any

from attrs import define, field

from etdev import Claim, Group, KeepWhole, Refusal, hookimpl


@define(eq=False)
class Takes:
    """Claims every node whose op is one of `ops`, each a group of its own.

    Args:
        name: The plugin's name.
        ops: Endings of op names, such as `add.Tensor`.
        whole: ATen ops to keep whole.
        merge: As in Claim.
        constants: Take the constants along.
        shown: What it was shown, a list of op names per call.
    """

    name: str
    ops: tuple[str, ...]
    whole: tuple[Any, ...] = ()
    merge: bool = True
    constants: bool = True
    shown: list[list[str]] = field(factory=list)

    @hookimpl
    def keep_whole(self) -> KeepWhole | None:
        return KeepWhole(self.whole) if self.whole else None

    @hookimpl
    def claim_nodes(self, program: Any) -> Claim:
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        from etdev.graph.nodes import op_name

        calls = [n for n in program.graph.nodes if n.op == "call_function"]
        self.shown.append([op_name(node) for node in calls])
        wanted = [node for node in calls if op_name(node).endswith(self.ops)]
        refused = [Refusal(node, "op", "not mine") for node in calls if node not in wanted]
        groups = [Group([node]) for node in wanted]
        return Claim("XnnpackBackend", groups, refused, merge=self.merge)

    @hookimpl
    def claim_constants(self, partition: Any) -> list[Any]:
        return [c for c in partition.constants if self.constants and not c.mutated]
