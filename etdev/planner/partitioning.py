"""One round in which every plugin is asked, and the partitions that each gets.

A claim goes through four forms: the `Claim` that a plugin returns, the `Offer` after pins and other
plugins, the `Draft` of a partition, and the `Partition` once constants and device are settled. A
claim without a backend ends as an offer: its nodes stay in the method's program.
"""

from __future__ import annotations

import operator
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from attrs import define, evolve, field
from executorch.exir import EdgeCompileConfig
from torch.fx import Node

from etdev.graph.convex import find_partitions
from etdev.graph.method import MethodGraph
from etdev.graph.ops import moves
from etdev.planner.claim_checks import check_claims
from etdev.planner.forms import Form, Forms
from etdev.planner.offers import ClaimFilter, Offer
from etdev.planner.patterns import Patterns
from etdev.planner.reporter import Owner, Reporter, verdict_of
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema import reasons
from etdev.schema.ledger import Offered, Verdict
from etdev.schema.limits import Limits
from etdev.schema.partition import Draft

# Verdicts by node and plugin.
Verdicts = dict[str, dict[str, Verdict]]


@define(eq=False)
class Partitioning:
    """The partitions of one method while they are decided, plugin by plugin."""

    forms: Forms
    config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    # Plugins that can't have a node: it couldn't compile it, or gave up the op that this is of.
    barred: Verdicts = field(factory=dict)
    patterns: Patterns = field(factory=Patterns)
    drafts: list[Draft] = field(factory=list)
    # For each op that is decomposed since a piece of it was claimed, the first claimant.
    torn: dict[str, str] = field(factory=dict)
    # Plugins that gave up nodes because of their limits.
    given_up: Verdicts = field(factory=dict)
    reporter: Reporter = field(factory=Reporter)
    _last_resorts: list[tuple[str, Offer]] = field(factory=list)
    _missed: list[Offered] = field(factory=list)
    _counts: Counter[str] = field(factory=Counter)

    @property
    def graph(self) -> MethodGraph:
        """The method as it is decided so far."""
        return self._decided.graph

    @property
    def _decided(self) -> Form:
        return self.forms.form(self.torn)

    def ask(self, plugin: Plugin) -> None:
        """Ask a plugin for its claims, and form the partitions that it can have.

        It is shown the method as if it were alone; a built-in plugin, as decided so far. If another
        plugin holds a piece of an op, the op stays decomposed, and a plugin that wanted it whole is
        asked again and shown its pieces.
        """
        form = self._decided if plugin.builtin else self.forms.alone(plugin.name)
        torn = [op for op in self.torn if plugin.name in self.forms.whole[op]]
        offers = self._offers(plugin, form)
        if torn and not plugin.builtin:
            form = self.forms.alone(plugin.name, torn)
            offers = self._offers(plugin, form)
        self._leave_moves(offers, form)
        # An op is decomposed as soon as a plugin claims a piece of it.
        claimed = {name for offer in offers for group in offer.groups for name in group}
        for piece in form.pieces.keys() & claimed:
            self.torn.setdefault(form.pieces[piece], plugin.name)
        self._draft(plugin.name, offers, plugin.limits)
        self._restore(plugin.name, form)

    def unclaimed(self) -> list[str]:
        """Return the nodes that no plugin has and that have a decomposition.

        For a piece of an op that is whole in other forms, the op is returned.
        """
        decided = self._decided
        had = self.reporter.owners.keys() | decided.graph.foreign
        left = (name for name in decided.graph.ops if name not in had)
        found = self.forms.decomposable(left, decided)
        return list(dict.fromkeys(decided.pieces.get(name, name) for name in found))

    def resort(self) -> None:
        """Let plugins keep nodes as a last resort that are unclaimed and not decomposable."""
        for plugin, offer in self._last_resorts:
            groups = offer.claim.groups
            why = {name: group.why for group in groups for name in group.nodes if group.why}
            for names in offer.groups:
                present = self.graph.number.keys() >= {*names}
                if present and self.reporter.owners.keys().isdisjoint(names):
                    self.reporter.owned(plugin, names, why=why.get(names[0], ""))

    def again(self, pieces: Mapping[str, str]) -> Partitioning:
        """Return the next round, after some ops were decomposed for good.

        A plugin that gave up an op, or couldn't compile it, can't have its pieces.
        """
        lost = {
            piece: self.barred.get(op, {}) | self.given_up.get(op, {})
            for piece, op in pieces.items()
        }
        barred = {piece: self.barred.get(piece, {}) | said for piece, said in lost.items() if said}
        return Partitioning(self.forms, self.config, self.barred | barred)

    def untorn(self) -> Partitioning | None:
        """Return a round in which no plugin tears a pattern that another has whole, if one did."""
        patterns = self.patterns.after(self._missed, self._holders)
        same = patterns == self.patterns
        return None if same else Partitioning(self.forms, self.config, self.barred, patterns)

    def _holders(self, pattern: Offered) -> set[str | None]:
        names = [name for name in pattern.nodes if name not in self.torn]
        names += [piece for piece, op in self._decided.pieces.items() if op in pattern.nodes]
        owners = (self.reporter.owners.get(name, ("", None)) for name in names)
        return {plugin if partition else None for plugin, partition in owners}

    def _offers(self, plugin: Plugin, form: Form) -> list[Offer]:
        """Ask a plugin for its claims, and drop the nodes that other plugins have."""
        graph = form.graph
        # A built-in plugin is asked after those that nodes are pinned to.
        against = {} if plugin.builtin else self.forms.pinning.against(plugin.name)
        names = [node.name for node in graph.nodes]
        owners = {name: owner for name in names if (owner := self._owner(form, name))}
        taken = {name: owner for name, (owner, _) in owners.items()}
        if plugin.builtin:
            taken |= self._whole_for_others(plugin.name, taken)
        elsewhere = {name: against[name].plugin for name in names if name in against}
        partitions = {name: f"pinned_{_op(graph, name)}" for name in elsewhere.keys() - taken}
        partitions |= {name: home for name, (_, home) in owners.items() if home}
        claims = answers.claim_nodes(plugin, graph, elsewhere | taken, partitions, self.config)
        check_claims(plugin, graph, claims)
        barred = {n: said[plugin.name] for n, said in self.barred.items() if plugin.name in said}
        barred |= {n: verdict_of(plugin.name, reasons.PINNED, pin=p) for n, p in against.items()}
        barred |= self.patterns.bars(plugin.name, form.pieces)
        offering = ClaimFilter(plugin.name, form, taken, barred, self.reporter)
        offers = [offering.offer(claim) for claim in claims]
        self._missed += offering.missed
        return offers

    def _leave_moves(self, offers: Sequence[Offer], form: Form) -> None:
        """Drop the claims on an op's pieces that only move values: it stays whole for others."""
        every = [group for offer in offers for group in offer.groups]
        op_of = form.pieces.get
        torn = {op_of(name) for group in every for name in group if not moves(_node(form, name))}
        # A group that has nodes of several ops is not dropped.
        torn |= {op for group in every if len(ops := {*map(op_of, group)}) > 1 for op in ops}
        torn |= {None, *self.torn}
        for offer in offers:
            offer.groups[:] = [group for group in offer.groups if op_of(group[0]) in torn]

    def _whole_for_others(self, plugin: str, taken: Mapping[str, str]) -> dict[str, str]:
        """Return the ops that other plugins want whole, and that are decomposed without a claim."""
        requesters = {
            op: names
            for op, names in self.forms.whole.items()
            if names and plugin not in names and op not in taken
        }
        return {op: requesters[op][0] for op in self.forms.decomposable(requesters)}

    def _owner(self, form: Form, name: str) -> Owner | None:
        """Return the owner of a node, of a piece of it, or of the op that it is a piece of."""
        owners = self.reporter.owners
        owner = owners.get(name) or owners.get(form.pieces.get(name, ""))
        return owner or ((self.torn[name], None) if name in self.torn else None)

    def _restore(self, plugin: str, form: Form) -> None:
        """Make ops whole again if this plugin claimed pieces of them but got none.

        The ledger notes every op whose pieces all went elsewhere.
        """
        owned = self.reporter.owners.keys()
        held = {form.pieces[piece] for piece in form.pieces.keys() & owned}
        for op in [op for op, owner in self.torn.items() if owner == plugin and op not in held]:
            del self.torn[op]
        given_up = {
            form.pieces[piece]: said[plugin]
            for piece, said in self.given_up.items()
            if piece in form.pieces and plugin in said
        } | self.patterns.bars(plugin, {})
        computing: dict[str, list[str]] = {op: [] for op in form.pieces.values()}
        for piece, op in form.pieces.items():
            computing[op] += [] if moves(_node(form, piece)) else [piece]
        for op in computing.keys() - self.torn.keys() - owned:
            if verdict := given_up.get(op):
                self.reporter.lost([op], verdict)
            elif self.forms.pinning.allowed(op, [plugin]):
                verdict = verdict_of(plugin, reasons.PIECES)
                if why := self.reporter.refusal(plugin, computing[op]):
                    verdict = evolve(verdict, text=f"{verdict.text}: {why}")
                self.reporter.lost([op], verdict)

    def _draft(self, plugin: str, offers: Sequence[Offer], limits: Limits) -> None:
        """Form partitions of the nodes that a plugin can have; give up those below its limits."""
        graph = self.graph
        for offer in offers:
            if offer.claim.last_resort:
                self._last_resorts.append((plugin, offer))
            elif offer.claim.backend_id is None:
                for group in offer.groups:
                    self.reporter.owned(plugin, group)
        cuts = self._cuts(plugin, graph, [o for o in offers if o.claim.backend_id is not None])
        sizes = [sum(graph.nodes[n].name in graph.ops for n in cut.numbers) for cut in cuts]
        refusals = limits.refusals(
            [(size, cut.numbers[0]) for size, cut in zip(sizes, cuts, strict=True)]
        )
        begun = set()
        for cut, refusal in zip(cuts, refusals, strict=True):
            if refusal:
                names = [graph.nodes[number].name for number in cut.numbers]
                verdict = Verdict(plugin, *refusal)
                self.reporter.lost(names, verdict)
                for name in names:
                    self.given_up.setdefault(name, {})[plugin] = verdict
            else:
                # The first partition of an offer is not split from an earlier one.
                split_by = cut.split_by if cut.offer in begun else None
                self._own(plugin, graph, cut, split_by)
                begun.add(cut.offer)

    def _cuts(self, plugin: str, graph: MethodGraph, offers: Iterable[Offer]) -> list[_Cut]:
        """Return convex sets of nodes; together with all partitions they form no cycle."""
        blocks = [[graph.number[name] for name in draft.nodes] for draft in self.drafts]
        cuts: list[_Cut] = []
        for offer in offers:
            groups = [[graph.number[name] for name in group] for group in offer.groups]
            taken = [*blocks, *(cut.numbers for cut in cuts)]
            convex = find_partitions(graph.inputs, groups, taken, offer.claim.merge)
            for index, blocker in convex.torn.items():
                node = graph.nodes[blocker].name
                verdict = verdict_of(plugin, reasons.CONVEXITY, node=node)
                self.reporter.lost(offer.groups[index], verdict)
            for numbers, cause in zip(convex.partitions, convex.split_by, strict=True):
                split_by = None if cause is None else graph.nodes[cause].name
                cuts.append(_Cut(offer, numbers, split_by))
        return cuts

    def _own(self, plugin: str, graph: MethodGraph, cut: _Cut, split_by: str | None) -> None:
        claim = cut.offer.claim
        assert claim.backend_id is not None
        draft = Draft(
            name=f"{plugin}_{self._counts[plugin]}",
            method=graph.method,
            plugin=plugin,
            backend_id=claim.backend_id,
            nodes=tuple(graph.nodes[number].name for number in cut.numbers),
            constants=tuple(
                evolve(graph.constants[node.name], grouped=node.name in cut.offer.constants)
                for node in graph.reads(cut.numbers)
                if node.name in graph.constants
            ),
            device_types=claim.device_types,
            named_data=claim.named_data,
            compile_specs=claim.compile_specs,
            split_by=split_by,
            compiler=claim.compiler,
            specialises=claim.specialises,
        )
        self._counts[plugin] += 1
        self.drafts.append(draft)
        self.reporter.owned(plugin, draft.nodes, draft.name)


@define(eq=False)
class _Cut:
    """A convex set of nodes of an offer, ascending, and the node that split it from another."""

    offer: Offer
    numbers: tuple[int, ...]
    split_by: str | None


def _node(form: Form, name: str) -> Node:
    return form.graph.node(name)


def _op(graph: MethodGraph, name: str) -> str:
    """Return the name of a node, or for a getitem that of the op it reads."""
    node = graph.node(name)
    return node.all_input_nodes[0].name if node.target is operator.getitem else name
