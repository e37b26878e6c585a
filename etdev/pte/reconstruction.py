"""The reconstruction of a plan from the instructions of a .pte that carries none."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from attrs import define, evolve, field

from etdev.pte.instructions import kind_of
from etdev.pte.opening import opened, program_of
from etdev.pte.read import bytes_of, device, dtype_of
from etdev.schema.device import CPU
from etdev.schema.ledger import Entry, Ledger
from etdev.schema.partition import OWN_DEVICE, Partition, target_device
from etdev.schema.plan import MethodPlan, Plan
from etdev.schema.tensors import Copy, Tensor


def plan_of(path: Path) -> Plan:
    """Return the plan that the instructions of a .pte show: its delegates, kernels and values.

    It has no nodes and no reasons. The owner of a delegate is its backend. The first instruction
    that mentions a value is taken for the one that computes it.
    """
    program, _ = opened(path, program_of)
    return Plan(tuple(_Method(plan).plan() for plan in program.execution_plan))


@define
class _Method:
    """ExecuTorch's schema object of a method, whose instructions are read one after the other."""

    emitted: Any
    names: dict[int, str] = field(factory=dict)
    order: dict[int, int] = field(factory=dict)
    entries: list[Entry] = field(factory=list)
    partitions: dict[int, Partition] = field(factory=dict)
    copies: dict[Copy, None] = field(factory=dict)

    def plan(self) -> MethodPlan:
        """Return the plan that its instructions show."""
        self.names = {value: f"input {i}" for i, value in enumerate(self.emitted.inputs)}
        for chain in self.emitted.chains:
            for instruction in chain.instructions:
                self._read(instruction.instr_args)
        partitions = tuple(self.partitions.values())
        return MethodPlan(
            method=self.emitted.name,
            partitions=partitions,
            delegates=tuple(partition.name for partition in partitions),
            copies=tuple(self.copies),
            fallback=tuple(entry.node for entry in self.entries),
            ledger=Ledger(tuple(self.entries)),
        )

    def _read(self, instruction: Any) -> None:
        kind, name, position = kind_of(self.emitted, instruction, self.order)
        if position is not None:
            self._delegate(name, position, instruction)
        elif kind == "copy":
            self._copy(instruction)
        elif kind == "kernel":
            self._kernel(name, instruction)
        elif name == "MoveCall" and instruction.move_from in self.names:
            self.names[instruction.move_to] = self.names[instruction.move_from]

    def _delegate(self, backend: str, position: int, call: Any) -> None:
        specs = self.emitted.delegates[call.delegate_index].compile_specs
        own = target_device("", specs, OWN_DEVICE) or CPU
        name = f"{backend} #{position}"
        fresh = Partition(name, self.emitted.name, backend, backend, nodes=(), device=own)
        partition = self.partitions.get(position, fresh)
        read, computed = self._values(call.args)
        places = [device(self._value(value)) for value in (*read, *computed)]
        self.partitions[position] = evolve(
            partition,
            inputs=(*partition.inputs, *map(self._tensor, read)),
            outputs=(*partition.outputs, *map(self._tensor, computed)),
            device=next((place for place in places if not place.is_cpu), partition.device),
        )

    def _kernel(self, name: str, call: Any) -> None:
        read, computed = self._values(call.args)
        op = name.replace("::", ".")
        self.entries.append(
            Entry(
                node=f"{op} #{len(self.entries)}",
                op=op,
                owner=None,
                partition=None,
                verdicts=(),
                inputs=tuple(self.names[value] for value in read),
                values=tuple(self.names[value] for value in computed),
            )
        )

    def _copy(self, call: Any) -> None:
        read, computed = self._values(call.args)
        for source, target in zip(read, computed, strict=False):
            places = [device(self._value(value)) for value in (source, target)]
            self.copies[Copy(self._tensor(source), *places)] = None
            # Instructions that read the copy read the value.
            self.names[target] = self.names[source]

    def _values(self, args: Sequence[int]) -> tuple[list[int], list[int]]:
        """Return the values that an instruction reads and those that it computes, no constants."""
        values = dict.fromkeys(self._tensors(args))
        read = [value for value in values if value in self.names]
        computed = [value for value in values if value not in self.names]
        self.names |= {value: f"value {value}" for value in computed}
        return read, computed

    def _tensors(self, args: Sequence[int]) -> Iterator[int]:
        for index in args:
            value: Any = self._value(index) if index >= 0 else None
            kind = type(value).__name__
            if kind == "Tensor" and (index in self.names or not _is_constant(value)):
                yield index
            elif kind in ("TensorList", "OptionalTensorList"):
                yield from self._tensors(value.items)

    def _value(self, index: int) -> Any:
        return self.emitted.values[index].val

    def _tensor(self, index: int) -> Tensor:
        value = self._value(index)
        return Tensor(self.names[index], dtype_of(value), tuple(value.sizes), bytes_of(value))


def _is_constant(tensor: Any) -> bool:
    extra = tensor.extra_tensor_info
    external = extra is not None and extra.location.name == "EXTERNAL"
    return external or bool(tensor.data_buffer_idx)
