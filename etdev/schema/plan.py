"""The plan: the partitions of a program with their owners and devices, before compilation."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import evolve, field, frozen

from etdev.errors import EtdevError, MethodError
from etdev.schema.device import Device
from etdev.schema.displayed import Displayed
from etdev.schema.documents import PLAN
from etdev.schema.fix import Fix
from etdev.schema.ledger import Ledger
from etdev.schema.partition import Partition
from etdev.schema.structuring import CONVERTER
from etdev.schema.tensors import (
    Copy,
    Growth,
    Interface,
    PrecisionChange,
    SharedState,
    StoredAgain,
    loading,
    repeats,
)
from etdev.schema.wording import counted, listed

# More values than these are counted instead of named.
_NAMED = 3


@frozen(repr=False)
class MethodPlan(Displayed):
    """The plan of one method.

    Args:
        method: Name of the method.
        partitions: In the order in which they run.
        delegates: Names of all delegates in run order, including those that the program came
            with. A .pte lists its delegates in the order of their first calls, which is this one;
            the audit and `etdev check` match the two by position.
        copies: Values that ExecuTorch's device planning copies between devices at every run.
        conversions: Values that are quantised, dequantised or cast at the border of a partition.
        fallback: Names of the nodes that stay in the method's program, in graph order.
        ledger: The owner of each node, and what every plugin said about it.
        simplified: How many nodes were removed or changed before plugins were asked, by kind.
        fixes: What rows of the quirks table changed. Those of the stages `emit` and `plan memory`
            are known once the method is emitted.
        interface: Names of its inputs, outputs and state; empty for a plan that was made of a .pte.
    """

    method: str
    partitions: tuple[Partition, ...]
    delegates: tuple[str, ...]
    copies: tuple[Copy, ...]
    fallback: tuple[str, ...]
    ledger: Ledger
    simplified: Mapping[str, int] = field(factory=dict)
    conversions: tuple[PrecisionChange, ...] = ()
    fixes: tuple[Fix, ...] = ()
    interface: Interface = field(factory=Interface)

    @property
    def moved(self) -> tuple[Copy | PrecisionChange, ...]:
        """Its copies and conversions."""
        return (*self.copies, *self.conversions)

    @property
    def copied_bytes(self) -> int:
        """Bytes of constants that the .pte stores again, beyond the first time."""
        every = (constant for partition in self.partitions for constant in partition.constants)
        constants = {constant.name: constant for constant in every if constant.inside}
        return sum((c.copies - 1) * c.size_bytes for c in constants.values())

    @property
    def specialised(self) -> list[str]:
        """A line for each delegate whose compiler fixes dynamic sizes of the method."""
        return [
            f"{own.name} is compiled for the example's sizes of {listed(dynamic, _NAMED)} only"
            for own in self.partitions
            if own.specialises and (dynamic := [t.name for t in own.inputs if t.dynamic])
        ]

    @property
    def races(self) -> list[str]:
        """A line for each two backends that hand values to one another on a CUDA device.

        Each enqueues its work on a stream of its own and returns before it is done.
        """
        makers = {tensor.name: own for own in self.partitions for tensor in own.outputs}
        found: dict[tuple[str, str, Device], dict[str, None]] = {}
        for reader in (own for own in self.partitions if own.device.type == "cuda"):
            for name in (tensor.name for tensor in reader.inputs if tensor.name in makers):
                maker = makers[name]
                if maker.device == reader.device and maker.backend_id != reader.backend_id:
                    pair = maker.backend_id, reader.backend_id, reader.device
                    found.setdefault(pair, {})[name] = None
        return [
            f"{maker} hands {listed(list(names), _NAMED)} to {reader} on {device} without a copy: "
            "run both on one stream, in C++ by a CallerStreamGuard, else one may read too early"
            for (maker, reader, device), names in found.items()
        ]

    def owner(self, node: str) -> str | None:
        """Return the plugin that owns a node; None for a delegate the program came with."""
        return self.ledger[node].owner

    @property
    def summary(self) -> str:
        """The plan in a few words: `forward: 2 delegates, cpu 3, portable 1`."""
        owners = [f"{owner} {count}" for owner, count in self.ledger.owned().items()]
        borders = [counted(len(self.conversions), "conversion")] if self.conversions else []
        text = ", ".join([counted(len(self.partitions), "delegate"), *owners, *borders])
        return "; ".join([f"{self.method}: {text}", *self.caveats])

    @property
    def caveats(self) -> list[str]:
        """A line for each way in which the program may differ from PyTorch."""
        ops: dict[tuple[str, str], dict[str, None]] = {}
        for entry in self.ledger:
            if entry.caveat:
                ops.setdefault((entry.holder, entry.caveat), {})[entry.op] = None
        lines = [f"{plugin} {text}: {', '.join(of)}" for (plugin, text), of in ops.items()]
        return [*lines, *self.specialised, *self.races]


@frozen(repr=False)
class Plan(Displayed, Mapping[str, MethodPlan]):
    """The plan of a whole program, a mapping from the names of its methods to their plans.

    Args:
        methods: In the order the program lists them.
        plugins: Names and versions of the plugins that were asked, in claim order.
        state: The buffers that several methods share in eager PyTorch.
        stored_again: The weights that the .pte stores more than once, over all methods.
        growths: The plugins that make the .pte larger; known when it is compiled.
    """

    methods: tuple[MethodPlan, ...]
    plugins: tuple[tuple[str, str], ...] = ()
    state: tuple[SharedState, ...] = ()
    stored_again: tuple[StoredAgain, ...] = ()
    growths: tuple[Growth, ...] = ()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of all methods."""
        return tuple(partition for method in self.methods for partition in method.partitions)

    @property
    def summary(self) -> str:
        """The plans of all methods in a few words."""
        methods = (method.summary for method in self.methods)
        return "; ".join([*methods, *self.notes])

    def with_fixes(self, fixes: Mapping[str, Sequence[Fix]]) -> Plan:
        """Return the plan with what rows changed, by method; under "" stands what all share."""
        shared = fixes.get("", ())
        methods = [
            evolve(own, fixes=tuple(dict.fromkeys([*shared, *fixes.get(own.method, ())])))
            for own in self.methods
        ]
        return evolve(self, methods=tuple(methods))

    @property
    def notes(self) -> list[str]:
        """A line about state that is shared, weights that are stored again, and larger plugins."""
        return [*loading(self.state), *repeats(self.stored_again), *map(str, self.growths)]

    def __getitem__(self, method: str) -> MethodPlan:
        for plan in self.methods:
            if plan.method == method:
                return plan
        raise MethodError("plan", f"has no method {method!r}", f"it has {', '.join(self)}")

    def __iter__(self) -> Iterator[str]:
        return (plan.method for plan in self.methods)

    def __len__(self) -> int:
        return len(self.methods)

    def to_dict(self) -> dict[str, Any]:
        """Return the plan as plain data."""
        data = CONVERTER.unstructure(self)
        # Most plans have none, and documents without these keys keep their version.
        for key in ("state", "stored_again", "growths"):
            if not data[key]:
                del data[key]
        return PLAN.stamped(data)

    def to_json(self, indent: int | None = 2) -> str:
        """Return the plan as JSON text, which `Plan.from_json` reads."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def read(cls, file: Path) -> Plan:
        """Read the JSON of a plan, as `etdev plan --json` writes it.

        Raises:
            EtdevError: It can't be read, or is not a plan.
        """
        try:
            text = file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            what = f"can't be read ({getattr(error, 'strerror', 'it is not text')})"
            raise EtdevError(str(file), what, "write it with etdev plan --json") from error
        return cls.from_json(text, str(file))

    @classmethod
    def from_json(cls, text: str, who: str = "plan") -> Plan:
        """Read the JSON text of a plan, which messages call `who`, such as the path of its file.

        Raises:
            EtdevError: It is not a plan; the text has the path of the faulty key.
        """
        return PLAN.read(text, cls, who)
