"""Placement: the device of each partition, explicit before derived before the CPU."""

from __future__ import annotations

import warnings
from collections.abc import Container, Mapping
from typing import Any

from attrs import evolve, field, frozen
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.graph_module import get_control_flow_submodules
from torch.export import ExportedProgram

from etdev.errors import DeviceError, EtdevWarning, PluginError
from etdev.graph.nodes import delegate_device
from etdev.schema.device import ANY_METHOD, CPU, Device, for_method, per_method
from etdev.schema.plan import Assumed, Partition


def refuse_devices_in_branches(program: ExportedProgram, method: str) -> None:
    """Refuse delegates on a device inside control flow; ExecuTorch gives them no label and no copy.

    Raises:
        DeviceError: There is one; the text names it.
    """
    for name, branch, _ in get_control_flow_submodules(program.graph_module):
        for node in branch.graph.nodes:
            if node.target is not executorch_call_delegate:
                continue
            device = delegate_device(node)
            if not device.is_cpu:
                raise DeviceError(
                    f"method {method}",
                    f"{node.name} in the branch {name} is a delegate on {device}, and ExecuTorch "
                    "makes no copies to a device within a branch",
                    "lower the branch for the CPU",
                )


def pins(value: Mapping[str, Any] | None) -> dict[str, dict[str, Device]]:
    """Read `{"trt": "cuda:1", "cuda": {"forward": "cuda:0"}}` as devices per plugin and method."""
    found = {}
    for plugin, pinned in (value or {}).items():
        try:
            found[plugin] = per_method(pinned)
        except DeviceError as error:
            raise DeviceError(f"devices[{plugin!r}]", error.what, error.cure) from None
    return found


@frozen
class Placement:
    """Who may say where a partition runs.

    Args:
        explicit: Devices per plugin and method given to the Lowerer; they win.
        registry: The same from registry.toml.
        strict: An assumed device is an error.
    """

    explicit: Mapping[str, Mapping[str, Device]] = field(factory=dict)
    registry: Mapping[str, Mapping[str, Device]] = field(factory=dict)
    strict: bool = False

    def check_methods(self, methods: Container[str]) -> None:
        """Refuse an explicit device for a method that the program doesn't have.

        Raises:
            PluginError: There is one. The registry is for many programs and may name others.
        """
        for plugin, devices in self.explicit.items():
            for method in devices:
                if method != ANY_METHOD and method not in methods:
                    raise PluginError(
                        plugin, f"is pinned in the unknown method {method!r}", "check devices"
                    )

    def pinned(self, partition: Partition) -> Device | None:
        """The device that somebody fixed for a partition."""
        for table in (self.explicit, self.registry):
            device = for_method(table.get(partition.plugin, {}), partition.method)
            if device is not None:
                return device
        return None

    def place(self, partition: Partition, answer: Any) -> Partition:
        """A partition on the device that its plugin derived, guessed or left to the default.

        Raises:
            PluginError: The answer is no device.
            DeviceError: It was assumed, and this is strict.
        """
        if answer is None:
            first = partition.device_types[0]
            return partition.on(
                CPU if "cpu" in partition.device_types else Device(first), "default"
            )
        if isinstance(answer, Device):
            return partition.on(answer, "derived")
        if not isinstance(answer, Assumed):
            raise PluginError(
                partition.plugin,
                f"resolve_device returned {answer!r} for {partition.where}",
                'return a Device, such as Device("cuda", 0)',
            )
        cure = f'pin it: devices={{"{partition.plugin}": "{answer.device}"}}'
        what = f"had to assume {answer.device} for {partition.where}: {answer.why}"
        if self.strict:
            raise DeviceError(partition.plugin, what, cure)
        warnings.warn(f"{partition.plugin}: {what}; {cure}", EtdevWarning, stacklevel=2)
        return partition.on(answer.device, "assumed", answer.why)


def with_caveat(partition: Partition, answer: Any) -> Partition:
    """A partition with what its plugin has to say about its device, as a warning too.

    Raises:
        PluginError: The answer is no text.
    """
    if answer is None:
        return partition
    if not isinstance(answer, str):
        raise PluginError(
            partition.plugin,
            f"device_caveat returned {answer!r} for {partition.where}",
            "return a line of text, or None",
        )
    what = (
        f"{partition.where} is put on {partition.device} ({partition.device_source}), but {answer}"
    )
    warnings.warn(f"{partition.plugin}: {what}", EtdevWarning, stacklevel=2)
    note = f"{partition.device_note}; {answer}" if partition.device_note else answer
    return evolve(partition, device_note=note)
