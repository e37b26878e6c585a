"""The plan: partitions with owner, constants and device, decided before anything is compiled."""

from __future__ import annotations

import json
import math
from typing import TYPE_CHECKING, Any

from attrs import evolve, field, frozen, validators

from etdev.errors import DeviceError, PluginError
from etdev.schema.colours import colours_of
from etdev.schema.compile_specs import CompileSpec
from etdev.schema.device import CPU, Device
from etdev.schema.documents import CONVERTER, PLAN
from etdev.schema.ledger import Ledger
from etdev.schema.plan_sheets import sheets, summary
from etdev.schema.sheet import html, rich
from etdev.schema.simplification import Simplification
from etdev.schema.tensors import Constant, Copy, Tensor

if TYPE_CHECKING:
    from rich.console import Group

    from etdev.schema.diff import Difference

# From the strongest to the weakest; every device has one.
DEVICE_SOURCES = ("pinned", "derived", "assumed", "default")
TARGET_DEVICE = "target_device"
# Inductor takes a written buffer of one element, such as a counter, for the number that it is at
# first, so that every call of these backends would begin anew.
INDUCTOR = ("CudaBackend", "MetalBackend")


@frozen
class Assumed:
    """A device that a plugin had to guess: a warning, or an error under `strict`."""

    device: Device = field(validator=validators.instance_of(Device))
    why: str = field(validator=validators.instance_of(str))


@frozen
class Draft:
    """A partition whose constants and device are not settled yet.

    What `claim_constants` is asked about: which values enter the delegate depends on the answer.

    Args:
        name: Unique in its method, such as `cpu_0`.
        method: Method of the program, such as `forward`.
        plugin: The plugin that owns it.
        backend_id: ExecuTorch backend that runs it.
        nodes: Names of its nodes in graph order, getitems included.
        constants: Parameters, buffers and lifted tensors that its nodes read.
        device_types: Device types that its backend runs on, see `Claim`.
        named_data: Its backend stores equal constants once, see `Claim`.
        compile_specs: What the backend gets.
        split_by: The node that kept it from being one with an earlier partition; None for the
            first.
        compiler: ExecuTorch backend that compiles it, if another one than `backend_id`.
    """

    name: str
    method: str
    plugin: str
    backend_id: str
    nodes: tuple[str, ...]
    constants: tuple[Constant, ...] = ()
    device_types: tuple[str, ...] = ("cpu",)
    named_data: bool = False
    compile_specs: tuple[CompileSpec, ...] = ()
    split_by: str | None = None
    compiler: str | None = None

    @property
    def where(self) -> str:
        """Method and name, for messages: `forward/cpu_0`."""
        return f"{self.method}/{self.name}"

    def may_hold(self, constant: Constant) -> bool:
        """Whether its delegate can hold a constant: only its own nodes write it, and that lasts."""
        if constant.update is None:
            return True
        folded = self.backend_id in INDUCTOR and math.prod(constant.shape) == 1
        return constant.update in self.nodes and not folded


@frozen
class Partition(Draft):
    """The convex set of nodes that becomes one delegate; a draft, settled.

    Args:
        inputs: Values it takes from outside, in the order its nodes read them.
        outputs: Values that others read.
        device: Where it runs; `compile_specs` has its `target_device` unless it is the CPU.
        device_source: `pinned`, `derived`, `assumed` or `default`.
        device_note: Why a device was assumed, and why it may not run there.
    """

    inputs: tuple[Tensor, ...] = ()
    outputs: tuple[Tensor, ...] = ()
    device: Device = CPU
    device_source: str = field(default="default", validator=validators.in_(DEVICE_SOURCES))
    device_note: str = ""

    def on(self, device: Device, source: str, note: str = "") -> Partition:
        """Put this partition on a device: one `target_device` spec, or none on the CPU.

        Raises:
            DeviceError: Its backend doesn't run on a device of that type.
            PluginError: Its plugin gave a `target_device` spec itself.
        """
        if device.type not in self.device_types:
            what = (
                f"{self.backend_id} does not run on {device}, where {self.where} was put ({source})"
            )
            raise DeviceError(self.plugin, what, f"it runs on {' and '.join(self.device_types)}")
        if any(spec.key == TARGET_DEVICE for spec in self.compile_specs):
            raise PluginError(
                self.plugin,
                f"gives its own {TARGET_DEVICE} compile spec for {self.where}",
                "return the device from resolve_device",
            )
        # ExecuTorch would plan copies to a target device `cpu`, too, and fail at run time.
        spec = () if device.is_cpu else (CompileSpec(TARGET_DEVICE, str(device).encode()),)
        return evolve(
            self,
            device=device,
            device_source=source,
            device_note=note,
            compile_specs=self.compile_specs + spec,
        )


@frozen(repr=False)
class MethodPlan:
    """The plan of one method.

    Args:
        method: Name of the method.
        partitions: In the order in which they run.
        delegates: Names of all delegates, the program's own calls among our partitions, in run
            order. A .pte lists its delegates in the order of their first calls, which is this one;
            the audit and `etdev check` match the two by position.
        copies: Values that ExecuTorch's device planning copies between devices at every run.
        fallback: Names of the nodes left to portable kernels, in graph order.
        ledger: The reason for every node.
        simplified: What was taken out of the program or changed in it before plugins were asked.
    """

    method: str
    partitions: tuple[Partition, ...]
    delegates: tuple[str, ...]
    copies: tuple[Copy, ...]
    fallback: tuple[str, ...]
    ledger: Ledger
    simplified: tuple[Simplification, ...] = ()

    @property
    def copied_bytes(self) -> int:
        """Bytes of constants that the .pte stores again, beyond the first time."""
        every = (constant for partition in self.partitions for constant in partition.constants)
        constants = {constant.name: constant for constant in every if constant.inside}
        return sum((c.copies - 1) * c.size_bytes for c in constants.values())

    def owner(self, node: str) -> str | None:
        """The plugin that owns a node; None leaves it to portable kernels."""
        return self.ledger[node].owner

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {summary(self)}>"

    def _repr_html_(self) -> str:
        owners = self.ledger.owned()
        return html(
            sheets(self), colours_of((v.plugin for e in self.ledger for v in e.verdicts), owners)
        )

    def __rich__(self) -> Group:
        return rich(sheets(self))


@frozen(repr=False)
class Plan:
    """The plan of a whole program: one per method.

    Args:
        methods: In the order the program lists them.
        plugins: Names and versions of the plugins that were asked, in claim order.
    """

    methods: tuple[MethodPlan, ...]
    plugins: tuple[tuple[str, str], ...] = ()

    @property
    def partitions(self) -> tuple[Partition, ...]:
        """The partitions of all methods."""
        return tuple(partition for method in self.methods for partition in method.partitions)

    def diff(self, other: Plan) -> Difference:
        """What is different in another plan."""
        from etdev.schema.diff import diff

        return diff(self, other)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {'; '.join(map(summary, self.methods))}>"

    def _repr_html_(self) -> str:
        owners = colours_of((name for name, _ in self.plugins), (p.plugin for p in self.partitions))
        return html((sheet for method in self.methods for sheet in sheets(method)), owners)

    def __rich__(self) -> Group:
        return rich(sheet for method in self.methods for sheet in sheets(method))

    def __getitem__(self, method: str) -> MethodPlan:
        for plan in self.methods:
            if plan.method == method:
                return plan
        raise KeyError(method)

    def to_dict(self) -> dict[str, Any]:
        """The plan as plain data: dicts, lists, text and numbers."""
        return PLAN.stamped(CONVERTER.unstructure(self))

    def to_json(self, indent: int | None = 2) -> str:
        """The plan as JSON text; `Plan.from_json` reads it back."""
        return json.dumps(self.to_dict(), indent=indent)

    @classmethod
    def from_json(cls, text: str, who: str = "plan") -> Plan:
        """Read what `to_json` wrote.

        Args:
            text: The text.
            who: What it is called in messages, such as the path of its file.

        Raises:
            EtdevError: It is not a plan; the text has the path of the faulty key.
        """
        return PLAN.read(text, cls, who)
