"""Tags: what an ExecuTorch partitioner wrote on the nodes of a program, read as claims."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Mapping, Sequence, Set
from functools import cached_property
from itertools import zip_longest
from typing import Any

from attrs import define, evolve, field, frozen
from executorch.exir.backend.partitioner import DelegationSpec, PartitionResult
from executorch.exir.graph_module import get_control_flow_submodules
from torch.fx import Graph, GraphModule, Node

from etdev.errors import ClaimError, EtdevError
from etdev.graph.convex import find_partitions
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import fingerprint, target_device
from etdev.registry.shadow import TAG
from etdev.schema.claims import Claim, Group, Refusal
from etdev.schema.compile_specs import CompileSpec, compile_specs
from etdev.schema.device import DEVICE_TYPES, Device
from etdev.schema.partition import TARGET_DEVICE


@frozen
class Delegation:
    """A DelegationSpec as a claim can carry it.

    Args:
        backend_id: Name of the ExecuTorch backend.
        specs: Its compile specs without `target_device`, which the host writes.
        device: What `target_device` said.
    """

    backend_id: str
    specs: tuple[CompileSpec, ...]
    device: Device | None


@frozen(eq=False, slots=False)
class Tagging:
    """The tags on a program, checked.

    Args:
        groups: For each delegation its atomic groups.
        constants: Names of the constants that have a tag.
        annotations: What else the partitioner wrote to `node.meta`, by the name of the node.
        refusals: Why nodes that it tagged can't be claimed.
    """

    groups: Mapping[Delegation, list[Group]] = field(factory=dict)
    constants: Set[str] = frozenset()
    annotations: Mapping[str, Mapping[str, Any]] = field(factory=dict)
    refusals: Sequence[Refusal] = ()

    def claims(self, backend_id: str, refusals: Sequence[Refusal]) -> list[Claim]:
        """A claim for each delegation.

        Args:
            backend_id: Backend of the claim that carries the refusals if nothing is tagged.
            refusals: Why nodes are left that have no tag.
        """
        claims = [
            Claim(
                backend_id=delegation.backend_id,
                groups=groups,
                compile_specs=delegation.specs,
                device_types=DEVICE_TYPES,
                merge=False,
            )
            for delegation, groups in self.groups.items()
        ]
        first, *others = claims or [Claim(backend_id, ())]
        return [evolve(first, refusals=(*self.refusals, *refusals)), *others]

    @cached_property
    def named(self) -> set[str]:
        """Nodes that are in a group or refused."""
        groups = (group for members in self.groups.values() for group in members)
        return {r.node for r in self.refusals}.union(*(group.nodes for group in groups))

    @cached_property
    def devices(self) -> dict[str, Device]:
        """The device of each node whose delegation names one."""
        return {
            name: delegation.device
            for delegation, groups in self.groups.items()
            if delegation.device is not None
            for group in groups
            for name in group.nodes
        }


@define(eq=False)
class TagReader:
    """Reads and checks the tags that a partitioner put on the program it was shown.

    Args:
        plugin: Name of the plugin that asks.
        partitioner: Name of the partitioner that is asked, for messages.
        shown: The program as it is shown; indexed before the partitioner sees it.
    """

    plugin: str
    partitioner: str
    shown: MethodGraph
    before: list[str] = field(init=False)
    metas: dict[str, dict[str, Any]] = field(init=False)
    specs: Mapping[Any, DelegationSpec] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.before = fingerprint(self.shown.program.graph)
        self.metas = {node.name: dict(node.meta) for node in self.shown.program.graph.nodes}

    def read(self, result: Any) -> Tagging:
        """Read the tags of the program that the partitioner returned.

        Raises:
            ClaimError: It tagged what it may not, changed the graph, or its tags form a cycle.
            DeviceError: A `target_device` can't be read.
        """
        if not isinstance(result, PartitionResult):
            raise self._fault(f"returned {result!r}", "return a PartitionResult")
        if not isinstance(result.partition_tags, Mapping):
            raise self._fault(
                f"returned the partition_tags {result.partition_tags!r}",
                "return a dict of tag to DelegationSpec",
            )
        self.specs = result.partition_tags
        module = result.tagged_exported_program.graph_module
        self._check_unchanged(module)
        tags = {n.name: self._tag(n) for n in module.graph.nodes if self._is_tagged(n)}
        numbers = self._by_tag(tags)
        self._check_convex(numbers)
        groups = self._groups(numbers)
        refusals = list(self._in_branches(module, tags, groups))
        constants = tags.keys() & self.shown.constants.keys()
        return Tagging(groups, constants, self._written(module.graph), refusals)

    def _check_unchanged(self, module: GraphModule) -> None:
        after = fingerprint(module.graph)
        for old, new in zip_longest(self.before, after):
            if old != new:
                raise self._fault(f"changed {old!r} to {new!r}", "tag nodes and change nothing")

    def _written(self, graph: Graph) -> dict[str, dict[str, Any]]:
        """What the backend may look for when it compiles: its matches, for one."""
        written = {}
        for node in graph.nodes:
            old = self.metas[node.name]
            new = {k: v for k, v in node.meta.items() if k not in old or old[k] is not v}
            new.pop(TAG, None)
            if new:
                written[node.name] = new
        return written

    def _is_tagged(self, node: Node) -> bool:
        # Some tag every get_attr. A delegate's goes with its call, whatever its own tag.
        module = node.op == "get_attr" and node.name in self.shown.foreign
        return node.meta.get(TAG) is not None and not module

    def _tag(self, node: Node) -> Any:
        """The tag of a node, if it may have one."""
        tag = node.meta[TAG]
        if node.op == "output":
            raise self._fault(f"tags the output with {tag!r}", "tag computing nodes and constants")
        if node.op == "placeholder" and node.name not in self.shown.constants:
            raise self._fault(
                f"tags the input {node.name!r} with {tag!r}", "tag computing nodes and constants"
            )
        if node.name in self.shown.foreign:
            raise self._fault(
                f"tags {node.name!r}, which belongs to a delegate, with {tag!r}",
                "leave calls of delegates and their getitems alone",
            )
        if tag not in self.specs:
            known = ", ".join(map(repr, self.specs)) or "nothing"
            raise self._fault(
                f"tags {node.name!r} with {tag!r}, which is not in its partition_tags",
                f"give it a DelegationSpec; there is one for {known}",
            )
        return tag

    def _by_tag(self, tags: Mapping[str, Any]) -> dict[Any, list[int]]:
        """Numbers of the nodes of each tag, in the order in which the tags appear."""
        by_tag: dict[Any, list[int]] = {}
        for number, node in enumerate(self.shown.nodes):
            source = node.args[0] if node.target is operator.getitem else node
            # A getitem goes with its op, whatever its own tag.
            tag = tags.get(getattr(source, "name", ""))
            if tag is not None:
                by_tag.setdefault(tag, []).append(number)
        return {tag: self.shown.with_followers(numbers) for tag, numbers in by_tag.items()}

    def _check_convex(self, numbers: Mapping[Any, list[int]]) -> None:
        tags = list(numbers)
        convexity = find_partitions(self.shown.inputs, list(numbers.values()), merge=False)
        for index, blocker in sorted(convexity.torn.items()):
            name = self.shown.nodes[blocker].name
            raise self._fault(
                f"gives {tags[index]!r} to nodes that {name!r} lies between",
                "tag convex sets of nodes",
            )
        tag_of = {number: tag for tag, members in numbers.items() for number in members}
        for partition in convexity.partitions:
            cyclic = list(dict.fromkeys(tag_of[number] for number in partition))
            if len(cyclic) > 1:
                raise self._fault(
                    f"gives {cyclic[0]!r} and {cyclic[1]!r} to nodes that wait for each other",
                    "tag sets of nodes that can run one after the other",
                )

    def _groups(self, numbers: Mapping[Any, list[int]]) -> dict[Delegation, list[Group]]:
        groups: dict[Delegation, list[Group]] = {}
        for tag, members in numbers.items():
            nodes = [self.shown.nodes[number] for number in members]
            groups.setdefault(self._delegation(tag), []).append(Group(nodes, str(tag)))
        return groups

    def _delegation(self, tag: Any) -> Delegation:
        spec = self.specs[tag]
        if not isinstance(spec, DelegationSpec):
            raise self._fault(f"gives {spec!r} for the tag {tag!r}", "give a DelegationSpec")
        try:
            device = target_device(self.plugin, spec.compile_specs)
            specs = compile_specs(spec.compile_specs)
        except EtdevError as error:
            what = f"{self.partitioner}'s tag {tag!r} has a bad compile spec: {error.what}"
            raise type(error)(self.plugin, what, error.cure) from None
        rest = tuple(spec for spec in specs if spec.key != TARGET_DEVICE)
        return Delegation(spec.backend_id, rest, device)

    def _in_branches(
        self, module: GraphModule, tags: Mapping[str, Any], groups: dict[Delegation, list[Group]]
    ) -> Iterator[Refusal]:
        for _, branch, node in get_control_flow_submodules(module):
            inside = [tag for tag in _tags_in(branch) if tag in self.specs]
            if inside and node.name not in tags:
                # Some claim has to carry the refusal, even if there is nothing else in it.
                groups.setdefault(self._delegation(inside[0]), [])
                text = f"{len(inside)} nodes that it tags in a branch can't be claimed"
                yield Refusal(node, "branch", text)

    def _fault(self, what: str, cure: str) -> ClaimError:
        who = f"{self.partitioner} {what}"
        return ClaimError(self.plugin, f"{who} in method {self.shown.method!r}", cure)


def _tags_in(branch: GraphModule) -> list[Any]:
    tags = [node.meta[TAG] for node in branch.graph.nodes if node.meta.get(TAG) is not None]
    for _, inner, _ in get_control_flow_submodules(branch):
        tags += _tags_in(inner)
    return tags
