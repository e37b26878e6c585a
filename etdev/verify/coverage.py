"""The parts of a method that its calls have not tried."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any

import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import Graph, Interpreter, Node

from etdev.graph.nodes import line_of

_SIDES = (True, False)


@define(eq=False, slots=False)
class Coverage:
    """The branches of a method's conditions, and those that its calls take.

    Args:
        program: The exported program; the state that it begins with decides, too.
    """

    program: ExportedProgram
    _taken: dict[str, set[bool]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._conditions = _conditions(self.program.graph)
        self._taken = {node.name: set() for node in self._conditions}

    @cached_property
    def _module(self) -> torch.fx.GraphModule:
        return self.program.module(check_guards=False)

    def note(self, inputs: Sequence[Any]) -> bool:
        """Note the branches that a call takes; return True if one of them is new."""
        if not self._conditions or all(len(sides) == 2 for sides in self._taken.values()):
            return False
        before = sum(map(len, self._taken.values()))
        # Such as an input that a check of the program refuses.
        with suppress(Exception), torch.no_grad():
            # A copy, since a call may write to buffers.
            _Recorder(copy.deepcopy(self._module), self._taken).run(*copy.deepcopy(list(inputs)))
        return sum(map(len, self._taken.values())) > before

    def missed(self) -> Iterator[str]:
        """Say which branches no call has taken."""
        for node in self._conditions:
            for side in _SIDES:
                if side not in self._taken[node.name]:
                    where = line_of(node)
                    yield f"branch `{str(side).lower()}`{f' at {where}' * bool(where)} not taken"


def _conditions(graph: Graph) -> list[Node]:
    return [node for node in graph.nodes if node.target is torch.ops.higher_order.cond]


class _Recorder(Interpreter):
    """Runs a module, and records the value of each predicate."""

    def __init__(self, module: torch.fx.GraphModule, taken: dict[str, set[bool]]) -> None:
        super().__init__(module)
        # The module's nodes are those of the program, in their order.
        self._sides = dict(zip(_conditions(module.graph), taken.values(), strict=True))

    def run_node(self, n: Node) -> Any:
        if n in self._sides:
            (predicate, *_), _ = self.fetch_args_kwargs_from_env(n)
            self._sides[n].add(bool(predicate))
        return super().run_node(n)
