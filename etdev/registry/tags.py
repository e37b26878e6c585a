"""The tags that an ExecuTorch partitioner wrote on the nodes of a program, read as claims."""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence, Set
from itertools import zip_longest
from typing import Any

from attrs import define, field, frozen
from executorch.exir.backend.partitioner import DelegationSpec, PartitionResult
from torch.fx import Node

from etdev.errors import ClaimError, EtdevError
from etdev.graph.method import MethodGraph
from etdev.graph.nodes import fingerprint
from etdev.registry.masked import TAG
from etdev.schema.claims import Claim, Group
from etdev.schema.device import DEVICE_TYPES, Device
from etdev.schema.partition import TARGET_DEVICE, CompileSpec, compile_specs, target_device

# A backend with its compile specs, without `target_device`, and the value of that.
Delegation = tuple[str, tuple[CompileSpec, ...], Device | None]


@frozen(eq=False)
class Tagging:
    """The tags on a program, checked."""

    # One for each DelegationSpec.
    claims: Sequence[Claim]
    # The device of each node whose DelegationSpec names one.
    devices: Mapping[str, Device]
    constants: Set[str]
    # Other additions of the partitioner to `node.meta`, by the name of the node.
    annotations: Mapping[str, Mapping[str, Any]]


@define(eq=False)
class TagReader:
    """Reads and checks the tags that a partitioner puts on the program it is shown."""

    plugin: str
    partitioner: str
    # The program as it is shown; indexed before the partitioner sees it.
    shown: MethodGraph
    before: list[str] = field(init=False)
    metas: dict[str, dict[str, Any]] = field(init=False)
    specs: Mapping[Any, DelegationSpec] = field(init=False)

    def __attrs_post_init__(self) -> None:
        self.before = fingerprint(self.shown.program.graph)
        self.metas = {node.name: dict(node.meta) for node in self.shown.program.graph.nodes}

    def read(self, result: PartitionResult) -> Tagging:
        """Read the tags of the program that the partitioner returned."""
        self.specs = result.partition_tags
        graph = result.tagged_exported_program.graph
        for old, new in zip_longest(self.before, fingerprint(graph)):
            if old != new:
                raise self._fault(f"changed {old!r} to {new!r}", "tag nodes and change nothing")
        # Some tag every get_attr. A delegate's goes with its call, whatever its own tag.
        modules = {n for n in graph.find_nodes(op="get_attr") if n.name in self.shown.foreign}
        tagged = (n for n in graph.nodes if n.meta.get(TAG) is not None and n not in modules)
        tags = {node.name: self._tag(node) for node in tagged}
        groups: dict[Delegation, list[Group]] = {}
        for tag, numbers in self._by_tag(tags).items():
            nodes = [self.shown.nodes[number] for number in numbers]
            groups.setdefault(self._delegation(tag), []).append(Group(nodes, str(tag)))
        settings: Any = {"device_types": DEVICE_TYPES, "merge": False}
        claims = [
            Claim(backend_id, members, compile_specs=specs, **settings)
            for (backend_id, specs, _), members in groups.items()
        ]
        devices = {
            name: device
            for (*_, device), members in groups.items()
            for group in members
            for name in group.nodes
            if device
        }
        annotations = {node.name: added for node in graph.nodes if (added := self._added(node))}
        return Tagging(claims, devices, tags.keys() & self.shown.constants.keys(), annotations)

    def _added(self, node: Node) -> dict[str, Any]:
        """Return the partitioner's notes for its backend's compiler, such as its matches."""
        old = self.metas[node.name]
        return {
            key: value
            for key, value in node.meta.items()
            if key != TAG and (key not in old or old[key] is not value)
        }

    def _tag(self, node: Node) -> Any:
        """Return the tag of a node, if it may have one."""
        tag = node.meta[TAG]
        place = "the output" if node.op == "output" else f"the input {node.name!r}"
        placeholder = node.op == "placeholder" and node.name not in self.shown.constants
        if node.op == "output" or placeholder:
            raise self._fault(f"tags {place} with {tag!r}", "tag computing nodes and constants")
        if node.name in self.shown.foreign:
            what = f"tags {node.name!r}, which belongs to a delegate, with {tag!r}"
            raise self._fault(what, "leave calls of delegates and their getitems alone")
        if tag not in self.specs:
            known = ", ".join(map(repr, self.specs)) or "nothing"
            what = f"tags {node.name!r} with {tag!r}, which is not in its partition_tags"
            raise self._fault(what, f"give it a DelegationSpec; there is one for {known}")
        return tag

    def _by_tag(self, tags: Mapping[str, Any]) -> dict[Any, list[int]]:
        """Return the numbers of the nodes of each tag, in the order in which the tags appear."""
        by_tag: dict[Any, list[int]] = {}
        for number, node in enumerate(self.shown.nodes):
            source = node.args[0] if node.target is operator.getitem else node
            # A getitem goes with its op, whatever its own tag.
            tag = tags.get(getattr(source, "name", ""))
            if tag is not None:
                by_tag.setdefault(tag, []).append(number)
        return {tag: self.shown.with_followers(numbers) for tag, numbers in by_tag.items()}

    def _delegation(self, tag: Any) -> Delegation:
        spec = self.specs[tag]
        try:
            device = target_device(self.plugin, spec.compile_specs)
            specs = compile_specs(spec.compile_specs)
        except EtdevError as error:
            what = f"{self.partitioner}'s tag {tag!r} has a bad compile spec: {error.what}"
            raise type(error)(self.plugin, what, error.cure) from None
        rest = tuple(spec for spec in specs if spec.key != TARGET_DEVICE)
        return spec.backend_id, rest, device

    def _fault(self, what: str, cure: str) -> ClaimError:
        who = f"{self.partitioner} {what}"
        return ClaimError(self.plugin, f"{who} in method {self.shown.method!r}", cure)
