"""The forms of one method while it is planned.

Every form is `expand(program, some of the ops that were kept whole)`: the method as a plugin would
see it if it were alone, and the method as decided so far. The planner rests on one rule: *a node is
its name, in every form*. A node that is not expanded keeps its name, and the pieces of an op are
named after it, whichever ops are expanded with it. So owners, pins and reasons are kept by name.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from attrs import define, field, frozen
from torch.export import ExportedProgram

from etdev.graph.expand import Expander
from etdev.graph.inlining import Expanded
from etdev.graph.method import MethodGraph
from etdev.graph.signature import computed_from, unwritten_constants
from etdev.planner.pinning import Pinning


@frozen(eq=False)
class Form:
    """One form of a method."""

    graph: MethodGraph
    # For each piece of an op that is whole in other forms, the name of that op.
    pieces: Mapping[str, str] = field(factory=dict)


@define(eq=False)
class Forms:
    """The forms of one method, each made once."""

    # Edge-dialect program of the method, with the wanted ops whole; it is not changed.
    program: ExportedProgram
    method: str
    # Ops that were kept whole, with the plugins that want them so and may have them.
    whole: dict[str, Sequence[str]]
    expander: Expander
    pinning: Pinning
    _forms: dict[frozenset[str], Form] = field(factory=dict)

    def __attrs_post_init__(self) -> None:
        self.pinning.note(self.program.graph)
        # The conversion may have dropped or renamed an op, and the wish of a plugin that can't have
        # an op does not count.
        present = {node.name for node in self.program.graph.nodes}
        self.whole = {
            op: self.pinning.allowed(op, requesters)
            for op, requesters in self.whole.items()
            if op in present
        }
        unwanted = [op for op, requesters in self.whole.items() if not requesters]
        self.decompose(self.decomposable(unwanted))

    def alone(self, plugin: str, torn: Iterable[str] = ()) -> Form:
        """Return the method as a plugin would see it alone: with the ops that it wants whole.

        Not those of them that another plugin holds a piece of, `torn`.
        """
        unwanted = [op for op, requesters in self.whole.items() if plugin not in requesters]
        return self.form(self.decomposable([*unwanted, *torn]))

    def form(self, expanded: Iterable[str]) -> Form:
        """Return the method with some ops expanded."""
        key = frozenset(expanded)
        if key not in self._forms:
            shown = self.expander.expand(self.program, self.method, key)
            self.pinning.note(shown.program.graph, shown.pieces)
            self._forms[key] = Form(MethodGraph(shown.program, self.method), shown.pieces)
        return self._forms[key]

    def decomposable(self, names: Iterable[str], form: Form | None = None) -> list[str]:
        """Return those of some nodes that have a decomposition."""
        program = form.graph.program if form else self.program
        nodes = {node.name: node for node in program.graph.nodes}
        return [name for name in names if self.expander.pieces(nodes[name], program, self.method)]

    def decompose(self, ops: Collection[str]) -> Mapping[str, str]:
        """Expand some ops for good, as no plugin has them whole; return the op of each piece."""
        expanded = self.expander.expand(self.program, self.method, ops)
        self.pinning.note(expanded.program.graph, expanded.pieces)
        self.program = self._folded(expanded)
        self.whole = {op: requesters for op, requesters in self.whole.items() if op not in ops}
        self._forms.clear()
        return expanded.pieces

    def _folded(self, expanded: Expanded) -> ExportedProgram:
        """Compute pieces ahead of time that constants decide, such as the slices of a weight."""
        program, simplify = expanded.program, self.expander.simplify
        decided = computed_from(program, unwritten_constants(program), inputless=False)
        pieces = decided & expanded.pieces.keys()
        return simplify(program, only=pieces) if simplify and pieces else program
