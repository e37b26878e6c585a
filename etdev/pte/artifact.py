"""The contents of a .pte, read from the file alone, and its figures."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping
from typing import Any

from attrs import field, frozen

from etdev.errors import DeviceError, RunError
from etdev.schema.converters import frozen_tuple
from etdev.schema.device import CPU, Device
from etdev.schema.documents import ARTIFACT
from etdev.schema.partition import OWN_DEVICE, CompileSpec, target_device
from etdev.schema.tensors import SharedState

# Key of the named data that is the plan.
LEDGER = "etdev.plan"
# Key of the named data that is the state which methods share.
STATE = "etdev.state"
# Key of the named data that is the digest of the file and of its .ptd.
DIGEST = "etdev.digest"


@frozen
class Value:
    """A method's input or output; dtype, sizes and order are empty unless it is a tensor.

    Its `order` is that of the dimensions in memory, outermost first.
    """

    kind: str
    dtype: str = ""
    sizes: tuple[int, ...] = field(default=(), converter=frozen_tuple)
    dynamic: bool = False
    device: Device = CPU
    order: tuple[int, ...] = field(default=(), converter=frozen_tuple)

    @property
    def size_bytes(self) -> int:
        """Bytes of a tensor in its largest size; 0 of anything else."""
        # By its name, since files may have dtypes that torch doesn't have.
        digits = re.search(r"\d+", self.dtype)
        width = max(int(digits[0]) // 8, 1) if digits else 1
        return math.prod(self.sizes) * width if self.dtype else 0


@frozen
class Delegate:
    """One delegate of a method.

    Args:
        devices: Devices of the tensors it is called with, inputs and outputs, each once.
        size_bytes: Size of its payload, without weights in named data.
        calls: Number of calls of it in the method.
        compile_specs: Settings that the backend was given.
        payload_device: Device that the payload itself uses, as a plugin reads it; None if unknown.
        fault: Why the payload can't run, as a plugin reads it; empty if it can.
        data: Keys of the named data that the payload looks up, as a plugin reads it.
        native: The payload is a shared library.
        values: What its first call is given: inputs, then outputs.
    """

    backend_id: str
    devices: tuple[Device, ...] = field(converter=frozen_tuple)
    size_bytes: int
    calls: int
    compile_specs: tuple[CompileSpec, ...] = field(converter=frozen_tuple)
    payload_device: Device | None = None
    data: tuple[str, ...] = field(default=(), converter=frozen_tuple)
    fault: str = ""
    native: bool = False
    values: tuple[Value, ...] = field(default=(), converter=frozen_tuple)

    @property
    def device(self) -> Device:
        """The first device that is not the CPU, else a kind of its plugin's own, else the CPU."""
        away = next((device for device in self.devices if not device.is_cpu), None)
        try:
            return away or target_device("", self.compile_specs, OWN_DEVICE) or CPU
        # A damaged file may hold any text.
        except DeviceError:
            return CPU


@frozen
class Arena:
    """Memory planned for a method on one device."""

    device: Device
    size_bytes: int


@frozen
class MethodArtifact:
    """One method of a .pte.

    Args:
        delegates: In the order of their first calls, which is that of `MethodPlan.delegates`; any
            that are never called come last.
        kernels: Number of calls of each operator, without copies between devices.
        operators: All operators that it needs, with those copies.
        dtypes: Dtypes of the tensors that each operator is called with.
        host_to_device: Copies to a device per run.
        device_to_host: Copies from a device per run.
        arenas: Planned memory.
        misplaced: Tensors in an arena of another device, and kernels that are given a tensor which
            is not on the CPU; in words.
        external: Names of its constants in a .ptd file.
    """

    name: str
    inputs: tuple[Value, ...]
    outputs: tuple[Value, ...]
    delegates: tuple[Delegate, ...]
    kernels: Mapping[str, int]
    operators: tuple[str, ...]
    dtypes: Mapping[str, tuple[str, ...]]
    host_to_device: int
    device_to_host: int
    arenas: tuple[Arena, ...]
    misplaced: tuple[str, ...]
    external: tuple[str, ...]


@frozen
class Artifact:
    """A .pte file.

    Args:
        constants_bytes: Constants that ExecuTorch keeps for its own kernels.
        named_bytes: Data that delegates find by name, such as their weights.
        named: Keys of that data.
        methods: In the order of the file.
        ledger_bytes: The plan that it carries, compressed; 0 if it carries none.
        native: Keys of the named data that is a shared library, which a backend loads and runs.
        state: The buffers that several methods share in eager PyTorch, if etdev wrote the file.
    """

    path: str
    size_bytes: int
    constants_bytes: int
    named_bytes: int
    named: tuple[str, ...]
    methods: tuple[MethodArtifact, ...]
    ledger_bytes: int = 0
    native: tuple[str, ...] = field(default=(), converter=frozen_tuple)
    state: tuple[SharedState, ...] = field(default=(), converter=frozen_tuple)

    @property
    def shares_state(self) -> bool:
        """Return True if methods have to be loaded together, with shared arenas."""
        return any(state.shared for state in self.state)

    def method(self, name: str) -> MethodArtifact:
        """Return a method by its name, or raise a RunError."""
        methods = {method.name: method for method in self.methods}
        if name not in methods:
            raise RunError(self.path, f"has no method {name!r}", f"it has {', '.join(methods)}")
        return methods[name]

    def to_dict(self) -> dict[str, Any]:
        """Return the artifact as plain data: dicts, lists, text and numbers."""
        return ARTIFACT.of(self)

    def figures(self) -> dict[str, int]:
        """Return the numbers by which two .pte files are compared."""
        numbers = Counter(
            {
                "bytes of the file": self.size_bytes,
                "bytes of constants": self.constants_bytes,
                "bytes of delegates' named data": self.named_bytes,
            }
        )
        for method in self.methods:
            name = method.name
            for d in method.delegates:
                numbers[f"{name}: bytes of delegates' payloads"] += d.size_bytes
                numbers[f"{name}: {d.backend_id} delegates on {d.device}"] += bool(d.calls)
            for kernel, calls in method.kernels.items():
                numbers[f"{name}: calls of {kernel}"] = calls
            for arena in method.arenas:
                numbers[f"{name}: bytes of memory planned on {arena.device}"] += arena.size_bytes
            numbers[f"{name}: copies to a device"] = method.host_to_device
            numbers[f"{name}: copies from a device"] = method.device_to_host
        return numbers
