"""Plugins in text: a line says what a toy plugin takes, what it keeps whole and where it runs.

    early takes add.Tensor mul.Tensor       nodes by the ending of their op, or by a glob of names
    pattern takes (add.Tensor mul.Tensor)   all of these as one atomic group
    late takes *, keeps aten.linear.default, merge no, constants no, device cuda:1
    cpu                                     a plugin that is installed

Clauses: `keeps OPS` whole, or `keeps OPS when NAMES`, globs of ATen nodes; `also takes OPS for
BACKEND`, a second claim; `merge no`; `constants no`, `constants yes` (all that its delegates may
hold, which is what it does unasked) or `constants NAMES`; `device D`; `assumes D because TEXT`;
`caveat TEXT`; `types TYPES` of devices; `backend B`; `specs KEY=VALUE`; `named data`; `silent`
(refuses nothing); `whole patterns`, its atomic groups, no part for other plugins.
"""

from __future__ import annotations

import operator
import re
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import torch
from attrs import define, field

from etdev import Assumed, Claim, Device, Group, KeepWhole, Refusal, hookimpl
from etdev.graph.nodes import op_name

# Whether it is one atomic group, and the words that its nodes match.
Takes = tuple[bool, list[str]]

_FLAGS = {"named data": "named_data", "silent": "silent", "whole patterns": "whole"}
_WORD = re.compile(r"\(([^)]*)\)|(\S+)")


@define(eq=False)
class Toy:
    """A plugin that answers as its line says, and notes what it was asked."""

    name: str
    takes: list[Takes]
    asked: list[Asked]
    also: dict[str, list[Takes]] = field(factory=dict)
    keeps: KeepWhole | None = None
    merge: bool = True
    constants: list[str] | None = None
    device: Device | Assumed | None = None
    caveat: str | None = None
    types: tuple[str, ...] = ("cpu", "cuda")
    backend: str = "ToyBackend"
    specs: dict[str, bytes] = field(factory=dict)
    named_data: bool = False
    silent: bool = False
    whole: bool = False

    @hookimpl
    def keep_whole(self) -> KeepWhole | None:
        return self.keeps

    @hookimpl
    def claim_nodes(self, program: Any, taken: Any, partitions: Any) -> list[Claim]:
        nodes = [node for node in program.graph.nodes if node.op == "call_function"]
        self.asked.append(Asked(self.name, [n.name for n in nodes], dict(taken), dict(partitions)))
        known = [*program.graph.find_nodes(op="placeholder"), *nodes]
        groups = {
            backend: [group for item in takes for group in _groups(known, *item, self.whole)]
            for backend, takes in {self.backend: self.takes, **self.also}.items()
        }
        mine = {name for each in groups.values() for group in each for name in group.nodes}
        others = [n for n in nodes if n.name not in mine and n.target is not operator.getitem]
        refusals = [] if self.silent else [Refusal(node, "op", "not mine") for node in others]
        return [self._claim(backend, groups[backend], refusals) for backend in groups]

    def _claim(self, backend: str, groups: list[Group], refusals: list[Refusal]) -> Claim:
        return Claim(
            backend,
            groups,
            refusals,
            compile_specs=self.specs,
            device_types=self.types,
            named_data=self.named_data,
            merge=self.merge,
        )

    @hookimpl
    def claim_constants(self, partition: Any) -> list[Any]:
        if self.constants is None:
            return [c for c in partition.constants if partition.may_hold(c)]
        return self.constants

    @hookimpl
    def resolve_device(self) -> Any:
        return self.device

    @hookimpl
    def device_caveat(self) -> str | None:
        return self.caveat


@define
class Asked:
    """A call of `claim_nodes`."""

    plugin: str
    shown: list[str]
    taken: dict[str, str]
    partitions: dict[str, str]


def plugin(line: str, asked: list[Asked]) -> Any:
    """The plugin that a line describes; its calls are noted in `asked`."""
    name, _, rest = line.partition(" takes ")
    if not rest:
        return name
    takes, *clauses = rest.split(", ")
    toy = Toy(name, _takes(takes), asked)
    for clause in clauses:
        _apply(toy, *clause.partition(" ")[::2])
    return toy


def _apply(toy: Toy, word: str, rest: str) -> None:
    if word == "keeps":
        ops, _, names = rest.partition(" when ")
        whole = [operator.attrgetter(op)(torch.ops) for op in ops.split()]
        toy.keeps = KeepWhole(whole, partial(_named, names.split()) if names else None)
    elif word == "also":
        takes, _, backend = rest.removeprefix("takes ").partition(" for ")
        toy.also[backend] = _takes(takes)
    elif word == "merge":
        toy.merge = rest != "no"
    elif word == "constants":
        toy.constants = None if rest == "yes" else [] if rest == "no" else rest.split()
    elif word == "device":
        toy.device = Device.parse(rest)
    elif word == "assumes":
        device, _, why = rest.partition(" because ")
        toy.device = Assumed(Device.parse(device), why)
    elif word == "types":
        toy.types = tuple(rest.split())
    elif word == "specs":
        toy.specs = {
            key: value.encode() for key, _, value in (s.partition("=") for s in rest.split())
        }
    elif word in ("caveat", "backend"):
        setattr(toy, word, rest)
    elif f"{word} {rest}".strip() in _FLAGS:
        setattr(toy, _FLAGS[f"{word} {rest}".strip()], True)
    else:
        raise ValueError(f"{toy.name}: unknown clause {word} {rest}")


def _takes(text: str) -> list[Takes]:
    return [(bool(group), (group or word).split()) for group, word in _WORD.findall(text)]


def _groups(nodes: list[Any], atomic: bool, words: list[str], whole: bool) -> list[Group]:
    found = [node for node in nodes if any(_matches(node, word) for word in words)]
    if atomic:
        return [Group(found, "pattern" if whole else "", whole)] if found else []
    return [Group([node]) for node in found]


def _named(globs: list[str], node: Any) -> bool:
    return any(fnmatchcase(node.name, glob) for glob in globs)


def _matches(node: Any, word: str) -> bool:
    # Getitems follow their op unasked and constants need no claim, so only their name claims them.
    if node.op == "placeholder" or node.target is operator.getitem:
        return word == node.name
    return op_name(node).endswith(word) or fnmatchcase(node.name, word)
