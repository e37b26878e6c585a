"""The artefact: what a .pte holds, read from the file alone."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from attrs import field, frozen
from cattrs.preconf.json import make_converter

from etdev.device import CPU, Device
from etdev.errors import ArtifactError, first_line
from etdev.values import CompileSpec, frozen_tuple

_MAGIC = slice(4, 6)
_CURE = "give a .pte that ExecuTorch wrote"
# ExecuTorch's ScalarType in torch's names.
_DTYPES = {
    "BYTE": "uint8", "CHAR": "int8", "SHORT": "int16", "INT": "int32", "LONG": "int64",
    "HALF": "float16", "FLOAT": "float32", "DOUBLE": "float64", "BOOL": "bool",
    "BFLOAT16": "bfloat16",
}  # fmt: skip


@frozen
class Value:
    """A method's input or output; dtype and sizes are empty unless it is a tensor."""

    kind: str
    dtype: str = ""
    sizes: tuple[int, ...] = field(default=(), converter=frozen_tuple)
    dynamic: bool = False
    device: Device = CPU


@frozen
class Delegate:
    """One delegate of a method.

    Args:
        backend_id: Backend that runs it.
        device: Device of the tensors it is called with.
        size_bytes: Its payload; weights in named data not included.
        calls: How often the method calls it.
        compile_specs: What the backend was given.
    """

    backend_id: str
    device: Device
    size_bytes: int
    calls: int
    compile_specs: tuple[CompileSpec, ...] = field(converter=frozen_tuple)


@frozen
class Arena:
    """Memory that is planned ahead for a method on one device."""

    device: Device
    size_bytes: int


@frozen
class MethodArtifact:
    """One method of a .pte, in the order in which it runs."""

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    delegates: tuple[Delegate, ...]
    kernels: Mapping[str, int]
    arenas: tuple[Arena, ...]


@frozen
class Artifact:
    """A .pte file.

    Args:
        path: Where it is.
        size_bytes: The whole file.
        constants_bytes: Constants that ExecuTorch keeps for its own kernels.
        named_bytes: Data that delegates find by name, such as XNNPACK's weights.
        methods: In the order of the file.
    """

    path: str
    size_bytes: int
    constants_bytes: int
    named_bytes: int
    methods: tuple[MethodArtifact, ...]

    def to_dict(self) -> dict[str, Any]:
        """The artefact as plain data: dicts, lists, text and numbers."""
        data: dict[str, Any] = _converter.unstructure(self)
        return data


def read(path: str | Path) -> Artifact:
    """Read a .pte.

    Raises:
        ArtifactError: It is missing, truncated, or no .pte at all.
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArtifactError(str(file), f"can't be read ({error.strerror})", _CURE) from error
    if data[_MAGIC] != b"ET":
        raise ArtifactError(str(file), "is no .pte file", _CURE)
    from executorch.exir._serialize._program import deserialize_pte_binary

    try:
        parsed = deserialize_pte_binary(data)
        return _artifact(file, len(data), parsed)
    except Exception as error:
        # The reader trusts its input; cut or flipped bytes surface as whatever they break first.
        raise ArtifactError(
            str(file), f"is damaged or truncated ({first_line(error)})", _CURE
        ) from error


def _artifact(file: Path, size_bytes: int, parsed: Any) -> Artifact:
    program = parsed.program
    named = parsed.named_data
    return Artifact(
        path=str(file),
        size_bytes=size_bytes,
        constants_bytes=sum(len(buffer.storage) for buffer in program.constant_buffer),
        named_bytes=sum(len(buffer) for buffer in named.buffers) if named else 0,
        methods=tuple(_method(program, plan) for plan in program.execution_plan),
    )


def _method(program: Any, plan: Any) -> MethodArtifact:
    instructions = [item.instr_args for chain in plan.chains for item in chain.instructions]
    calls = [item for item in instructions if type(item).__name__ == "DelegateCall"]
    kernels = [item.op_index for item in instructions if type(item).__name__ == "KernelCall"]
    counts = Counter(_operator(plan.operators[index]) for index in kernels)
    return MethodArtifact(
        name=plan.name,
        inputs=tuple(_value(plan.values[index].val) for index in plan.inputs),
        outputs=tuple(_value(plan.values[index].val) for index in plan.outputs),
        delegates=tuple(_delegates(program, plan, calls)),
        kernels=dict(counts.most_common()),
        arenas=tuple(_arenas(plan)),
    )


def _delegates(program: Any, plan: Any, calls: list[Any]) -> Iterable[Delegate]:
    devices: dict[int, set[Device]] = {}
    for call in calls:
        values = [plan.values[index].val for index in call.args]
        found = devices.setdefault(call.delegate_index, set())
        found.update(_device(value) for value in values if type(value).__name__ == "Tensor")
    counts = Counter(call.delegate_index for call in calls)
    for index, delegate in enumerate(plan.delegates):
        away = sorted(device for device in devices.get(index, ()) if not device.is_cpu)
        yield Delegate(
            backend_id=delegate.id,
            device=away[0] if away else CPU,
            size_bytes=len(program.backend_delegate_data[delegate.processed.index].data),
            calls=counts[index],
            compile_specs=tuple(CompileSpec(s.key, bytes(s.value)) for s in delegate.compile_specs),
        )


def _arenas(plan: Any) -> Iterable[Arena]:
    where = {
        item.buffer_idx: Device(item.device_type.name.lower(), item.device_index)
        for item in getattr(plan, "non_const_buffer_device", None) or ()
    }
    # Buffer 0 stands for the constants and is not planned.
    for index, size in enumerate(plan.non_const_buffer_sizes[1:], 1):
        yield Arena(where.get(index, CPU), size)


def _value(value: Any) -> Value:
    kind = type(value).__name__
    if kind != "Tensor":
        return Value(kind)
    return Value(
        kind,
        _DTYPES.get(value.scalar_type.name, value.scalar_type.name.lower()),
        tuple(value.sizes),
        value.shape_dynamism.name != "STATIC",
        _device(value),
    )


def _device(tensor: Any) -> Device:
    extra = tensor.extra_tensor_info
    return Device(extra.device_type.name.lower(), extra.device_index) if extra else CPU


def _operator(operator: Any) -> str:
    return f"{operator.name}.{operator.overload}" if operator.overload else str(operator.name)


_converter = make_converter()
_converter.register_unstructure_hook(Device, str)
