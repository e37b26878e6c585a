"""The parts of a method that its calls have tried, and those that they have not."""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
import torch
from attrs import define, field
from torch.export import ExportedProgram
from torch.fx import GraphModule, Interpreter, Node

from etdev.graph.nodes import graph_modules, line_of
from etdev.graph.signature import user_inputs
from etdev.verify.inputs import UNBOUNDED, open_ties
from etdev.verify.verification import Coverage

_SIDES = (True, False)


@define(eq=False, slots=False)
class Recording:
    """A record of the sizes, integers and branches that the calls of a method try.

    Args:
        program: The exported program.
    """

    program: ExportedProgram
    _taken: dict[Node, set[bool]] = field(factory=dict, init=False)
    _sizes: dict[str, set[int]] = field(factory=dict, init=False)
    _integers: dict[str, set[int]] = field(factory=dict, init=False)

    def __attrs_post_init__(self) -> None:
        self._taken = {node: set() for node in _conditions(self.program.graph_module)}

    @cached_property
    def _module(self) -> GraphModule:
        return self.program.module(check_guards=False)

    @cached_property
    def _inputs(self) -> list[tuple[str, Any]]:
        """The name and the fake value of each input."""
        return user_inputs(self.program)

    @property
    def is_whole(self) -> bool:
        """True if every branch was taken."""
        return all(len(sides) == len(_SIDES) for sides in self._taken.values())

    def note(self, inputs: Sequence[Any], state: Mapping[str, Any]) -> None:
        """Note what a call tries, given its inputs and the state before it."""
        for (name, fake), value in zip(self._inputs, inputs, strict=False):
            tensor = torch.as_tensor(value) if isinstance(value, (torch.Tensor, int)) else None
            if tensor is None or fake is None:
                continue
            for dim, size in enumerate(getattr(fake, "shape", ())):
                if isinstance(size, torch.SymInt):
                    self._sizes.setdefault(f"{name}.shape[{dim}]", set()).add(tensor.shape[dim])
            if not (tensor.is_floating_point() or tensor.is_complex()) and type(fake) is not int:
                values = np.unique(tensor.numpy(force=True)).tolist()
                self._integers.setdefault(name, set()).update(values)
        if not self.is_whole:
            for node, sides in self._sides(inputs, state).items():
                self._taken[node] |= sides

    def is_new(self, inputs: Sequence[Any], state: Mapping[str, Any]) -> bool:
        """Return True if a call takes a branch that was not taken."""
        return any(sides - self._taken[node] for node, sides in self._sides(inputs, state).items())

    def _sides(self, inputs: Sequence[Any], state: Mapping[str, Any]) -> dict[Node, set[bool]]:
        sides, module = {node: set[bool]() for node in self._taken}, self._module
        held = dict(chain(module.named_parameters(), module.named_buffers()))
        # The module's nodes are those of the program, in their order.
        pairs = zip(_conditions(module), self._taken, strict=True)
        # Such as an input that a check of the program refuses.
        with suppress(Exception), torch.no_grad():
            for name, value in state.items():
                held[name].copy_(value)
            recorder = _Recorder(module, {node: sides[own] for node, own in pairs})
            recorder.run(*copy.deepcopy(list(inputs)))
        return sides

    def coverage(self, method: str, calls: int, unread: Collection[str], last: int) -> Coverage:
        """Return the coverage of a number of calls, the last of them with state unread."""
        branches = {_place(node): (*sides,) for node, sides in self._taken.items()}
        gaps = (*self._gaps(), *(f"state `{name}` not read in {last} calls" for name in unread))
        sizes = {name: tuple(sorted(known)) for name, known in self._sizes.items()}
        integers = {name: len(known) for name, known in self._integers.items()}
        return Coverage(method, calls, sizes, integers, branches, gaps)

    def _gaps(self) -> Iterator[str]:
        for node, sides in self._taken.items():
            missed = [side for side in _SIDES if side not in sides]
            yield from (f"branch `{str(side).lower()}`{_at(node)} not taken" for side in missed)
        yield from (f"equal values{_at(node)} not tried" for node in open_ties(self.program)[:1])
        counts = self._counts()
        for name, known in (*self._sizes.items(), *self._integers.items()):
            if len(known) == 1:
                yield f"{name} always {min(known)}"
            elif len(known) < (count := counts.get(name, 0)):
                yield f"{name} at {len(known)} of {count} sizes"

    def _counts(self) -> dict[str, int]:
        """Return how many values each bounded size may have, by the first dimension with it.

        One such as `2 * n` has as many as `n`.
        """
        bounds, counts = dict(self.program.range_constraints), {}
        for name, fake in self._inputs:
            for dim, size in enumerate(getattr(fake, "shape", ())):
                symbols = size.node.expr.free_symbols if isinstance(size, torch.SymInt) else ()
                own = bounds.pop(next(iter(symbols)), None) if len(symbols) == 1 else None
                if own and own.upper < UNBOUNDED:
                    counts[f"{name}.shape[{dim}]"] = int(own.upper) - max(int(own.lower), 1) + 1
        return counts


def _conditions(module: GraphModule) -> list[Node]:
    nodes = [node for inner in graph_modules(module) for node in inner.graph.nodes]
    return [node for node in nodes if node.target is torch.ops.higher_order.cond]


def _place(node: Node) -> str:
    return f"{node.name}{_at(node)}"


def _at(node: Node) -> str:
    where = line_of(node)
    return f" at {where}" if where else ""


class _Recorder(Interpreter):
    """Runs a module and its branches, and records the value of each predicate."""

    def __init__(self, module: GraphModule, sides: Mapping[Node, set[bool]]) -> None:
        super().__init__(module)
        self._sides = sides

    def run_node(self, n: Node) -> Any:
        if n not in self._sides:
            return super().run_node(n)
        (predicate, *branches, operands), _ = self.fetch_args_kwargs_from_env(n)
        self._sides[n].add(side := bool(predicate))
        return _Recorder(branches[not side], self._sides).run(*operands)
