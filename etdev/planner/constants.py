"""Constants: which are inside a delegate, which stay outside, which are stored again."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from attrs import asdict, define, evolve, field
from torch.fx import Node

from etdev.graph.method import MethodGraph
from etdev.graph.nodes import describe
from etdev.schema.partition import Draft, Partition
from etdev.schema.tensors import Constant
from etdev.upstream.operators import SORTS_INPUTS


def settle(
    graph: MethodGraph,
    drafts: Sequence[Draft],
    ask: Callable[[Draft], Collection[str]],
    shared: Collection[str | None] = (),
) -> list[Partition]:
    """Decide each constant's storage, and with it the inputs and outputs of each partition.

    A buffer that the method writes is owned by the partition that writes it, if nothing else reads
    its old or its new value; otherwise it stays above the delegates, so that all see the right
    value at every step. A constant that nothing reads is offered to one partition after the other
    until a plugin claims it.

    `ask` returns the names that the owner of a partition claims for it. Buffers of the targets
    `shared`, which other methods read or write, too, stay outside.
    """
    unused = {
        name: constant
        for name, constant in graph.constants.items()
        if not graph.placeholders[name].users and not constant.mutated
    }
    shown, claimed = [], []
    for draft in drafts:
        names = ask(evolve(draft, constants=(*draft.constants, *unused.values())))
        adopted = [unused.pop(name) for name in list(unused) if name in names]
        shown.append(evolve(draft, constants=(*draft.constants, *adopted)))
        claimed.append(names)
    settlement = _Settlement(graph, shown, claimed, shared)
    return [settlement.partition(index) for index in range(len(shown))]


@define(eq=False)
class _Settlement:
    """All claims on constants, seen together."""

    graph: MethodGraph
    drafts: Sequence[Draft]
    claimed: Sequence[Collection[str]]
    shared: Collection[str | None]
    home: dict[str, int] = field(init=False)
    holders: dict[str, list[int]] = field(init=False)
    places: dict[str, int] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.home = {name: i for i, draft in enumerate(self.drafts) for name in draft.nodes}
        self.holders = {}
        for index, names in enumerate(self.claimed):
            for name in names:
                self.holders.setdefault(name, []).append(index)
        self.places = {name: place for place, name in enumerate(self.graph.placeholders)}

    def partition(self, index: int) -> Partition:
        draft = self.drafts[index]
        constants = tuple(self._constant(index, c) for c in draft.constants)
        inside = {c.name for c in constants if c.inside}
        written = {c.update for c in constants if c.inside and c.mutated}
        numbers = [self.graph.number[name] for name in draft.nodes]
        reads = [node for node in self.graph.reads(numbers) if node.name not in inside]
        # An owned buffer's new value never leaves: only the method's end reads it.
        outputs = [node for node in self.graph.outputs(numbers) if node.name not in written]
        return Partition(
            **{**asdict(draft, recurse=False), "constants": constants},
            inputs=tuple(map(describe, self._ordered(reads))),
            outputs=tuple(map(describe, outputs)),
        )

    def _ordered(self, reads: list[Node]) -> list[Node]:
        """Return values in the order in which ExecuTorch's own path hands them to a delegate."""
        if SORTS_INPUTS and all(node.name in self.places for node in reads):
            return sorted(reads, key=lambda node: self.places[node.name])
        return reads

    def _constant(self, index: int, constant: Constant) -> Constant:
        if constant.name not in self.claimed[index]:
            return constant
        if constant.mutated:
            return evolve(constant, storage="owned") if self._alone(index, constant) else constant
        stores = self._stores(constant.name)
        delegates = len(self.holders[constant.name])
        if stores > 1:
            return evolve(constant, storage="copied", copies=stores)
        return evolve(constant, storage="owned" if delegates == 1 else "shared")

    def _stores(self, name: str) -> int:
        """Return how often the .pte stores a constant."""
        holders = self.holders[name]
        stores = {self.drafts[i].backend_id if self.drafts[i].named_data else i for i in holders}
        return len(stores) + any(
            self.home.get(user.name) not in holders for user in self.graph.placeholders[name].users
        )

    def _alone(self, index: int, buffer: Constant) -> bool:
        """Return True if one partition has all readers of a buffer and of its new value."""
        if buffer.target in self.shared or buffer.update not in self.graph.number:
            return False
        update = self.graph.node(buffer.update or "")
        signature = self.graph.program.graph_signature
        written = [spec for spec in signature.output_specs if spec.arg.name == update.name]
        old = self.graph.placeholders[buffer.name]
        readers = [*old.users, *(user for user in update.users if user.op != "output")]
        # The new value may be an output of the method as well, or go to a second buffer.
        return len(written) == 1 and all(self.home.get(u.name) == index for u in readers)
