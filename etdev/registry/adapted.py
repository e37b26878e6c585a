"""Any ExecuTorch Partitioner, adapted as a plugin."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar
from unittest.mock import patch

from attrs import define, evolve, field

from etdev.errors import PluginError
from etdev.hookspecs import API, hookimpl
from etdev.schema.claims import Claim, KeepWhole, Refusal
from etdev.schema.device import Device, Probe, for_method, per_method
from etdev.schema.partition import Draft, Partition
from etdev.schema.tensors import Constant

if TYPE_CHECKING:
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.registry.tags import Tagging

_TRANSFORM = "transform_for_pre_decomposition"


def adapt(partitioner: Any, *, name: str, device: object = None) -> AdaptedPartitioner:
    """Make a plugin of an ExecuTorch Partitioner.

    Each tag becomes one partition, with all of its nodes or not at all. Nodes of earlier plugins
    are shown to it as foreign delegates. A Partitioner that rewrites programs before their
    decomposition rewrites them for all plugins. Nodes that it tags inside the branches of control
    flow stay on portable kernels, as with any plugin.

    Args:
        partitioner: Such as `NpuPartitioner()`. Its `partition` is given copies, and is called
            once or more per method.
        name: The plugin's name.
        device: Where its partitions run, `"cuda:1"` or `{"forward": "cuda:1"}`; None takes the
            `target_device` of the partitioner's compile specs, else the CPU.

    Raises:
        PluginError: It is not a Partitioner.
        DeviceError: The device can't be read.

    Example:
        Lowerer(plugins=[etdev.adapt(NpuPartitioner(), name="npu"), "cpu"])
    """
    from executorch.exir.backend.partitioner import Partitioner

    if not isinstance(name, str) or not name:
        raise PluginError("adapt", f"{name!r} is not a name", 'write name="npu"')
    if not isinstance(partitioner, Partitioner):
        what = f"{partitioner!r} is not an ExecuTorch Partitioner"
        raise PluginError(name, what, "give an object of a class that subclasses Partitioner")
    return AdaptedPartitioner(name, partitioner, {} if device is None else per_method(device))


@define(eq=False)
class AdaptedPartitioner:
    """A plugin that asks an ExecuTorch Partitioner; `etdev.adapt` makes it."""

    etdev_api: ClassVar[int] = API
    name: str
    partitioner: Any
    devices: Mapping[str, Device] = field(factory=dict)
    # The last answer for each method: a claim holds neither devices nor unused constants.
    _tagging: dict[str, Tagging] = field(factory=dict, init=False, repr=False)
    # The methods that it could rewrite in `prepare`.
    _prepared: set[str] = field(factory=set, init=False, repr=False)

    @hookimpl
    def probe(self) -> Probe:
        """Return no devices: a Partitioner can't say what it finds on this machine."""
        return Probe(())

    @hookimpl
    def prepare(self, program: ExportedProgram, method: str) -> ExportedProgram | None:
        """Rewrite the program as the partitioner does before it is decomposed."""
        self._prepared.add(method)
        return self._transformed(program, method)

    @hookimpl
    def keep_whole(self, program: ExportedProgram, method: str) -> KeepWhole:
        """Return the ops of the partitioner's `ops_to_not_decompose`, with its check.

        Raises:
            PluginError: It rewrites the program, and `etdev.partitioner()` calls no `prepare`.
        """
        if method not in self._prepared and self._transformed(program, method) is not None:
            what = f"{self._title} rewrites method {method!r} before its decomposition, which would"
            what += " change what other plugins are shown"
            cure = f"lower with etdev.Lowerer, or what {self._title}.{_TRANSFORM} returns"
            raise PluginError(self.name, what, cure)
        ops, check = self.partitioner.ops_to_not_decompose(program)
        return KeepWhole(ops, check)

    @hookimpl
    def claim_nodes(
        self,
        program: ExportedProgram,
        method: str,
        taken: Mapping[str, str],
        partitions: Mapping[str, str],
    ) -> Sequence[Claim]:
        """Return each tag as an atomic group, in one claim for each of the delegation specs."""
        from etdev.graph.method import MethodGraph
        from etdev.registry.masked import masked
        from etdev.registry.tags import TagReader

        # Another plugin has pieces of an op; the host asks again and shows the pieces.
        if taken.keys() - partitions.keys():
            return ()
        copied = masked(program, method, partitions)
        shown = MethodGraph(copied, method)
        reader = TagReader(self.name, self._title, shown)
        with _reasons_given() as reasons:
            result = self.partitioner.partition(copied)
        tagging = self._tagging[method] = reader.read(result)
        named = {name for claim in tagging.claims for group in claim.groups for name in group.nodes}
        named |= shown.foreign
        spec = getattr(self.partitioner, "delegation_spec", None)
        # Some claim has to carry the refusals, even where nothing is tagged.
        first, *others = tagging.claims or [Claim(getattr(spec, "backend_id", self._title), ())]
        cure = "a Partitioner gives one with ExecuTorch's WhyNoPartition"
        silent = "untagged", f"{self._title} gives no reason; {cure}"
        refusals = [
            Refusal(node, *(("partitioner", reasons[node]) if node in reasons else silent))
            for node in shown.ops
            if node not in named
        ]
        return [evolve(first, refusals=refusals), *others]

    @hookimpl
    def claim_constants(self, program: ExportedProgram, partition: Draft) -> Sequence[Constant]:
        """Return the constants that it tagged and that its delegate can hold."""
        from etdev.graph import folded_integers

        # A compiler may fold a constant of one element, and a counter would then start again at
        # each call.
        tagged = self._tagging[partition.method].constants - folded_integers(program)
        return [
            constant
            for constant in partition.constants
            if constant.name in tagged
            and partition.may_hold(constant)
            and not (constant.mutated and math.prod(constant.shape) == 1)
        ]

    @hookimpl
    def resolve_device(self, partition: Partition) -> Device | None:
        """Return the device given to `adapt`, else the one in its compile specs."""
        if given := for_method(self.devices, partition.method):
            return given
        derived = self._tagging[partition.method].devices
        return next((derived[name] for name in partition.nodes if name in derived), None)

    @hookimpl
    def annotate(self, partition: Partition) -> Mapping[str, Mapping[str, object]]:
        """Return the partitioner's notes for its backend's compiler, such as its matches."""
        written = self._tagging[partition.method].annotations
        constants = (constant.name for constant in partition.constants)
        return {name: written[name] for name in (*partition.nodes, *constants) if name in written}

    @property
    def _title(self) -> str:
        return type(self.partitioner).__name__

    def _transformed(self, program: ExportedProgram, method: str) -> ExportedProgram | None:
        """Return a program as the partitioner rewrites it; None if it doesn't."""
        from executorch.exir.backend.partitioner import Partitioner

        from etdev.graph.nodes import fingerprint
        from etdev.registry.masked import masked

        default = getattr(Partitioner, _TRANSFORM, None)
        # ExecuTorch 1.4 doesn't have it and wouldn't call it.
        if default is None or getattr(type(self.partitioner), _TRANSFORM) is default:
            return None
        changed: ExportedProgram = getattr(self.partitioner, _TRANSFORM)(
            masked(program, method, {})
        )
        return None if fingerprint(changed.graph) == fingerprint(program.graph) else changed


@contextmanager
def _reasons_given() -> Iterator[dict[str, str]]:
    """Collect, by node, the reasons that a partitioner gives with ExecuTorch's helpers."""
    from executorch.exir.backend.utils import WhyNoPartition, WhyNoPartitionReporter

    reasons: dict[str, str] = {}

    def heard(original: Callable[..., None]) -> Callable[..., None]:
        def method(helper: Any, node: Node, reason: str) -> None:
            reasons.setdefault(node.name, " ".join(str(reason).split()))
            original(helper, node, reason)

        return method

    said, reported = WhyNoPartition.__call__, WhyNoPartitionReporter.report_reject
    with (
        patch.object(WhyNoPartition, "__call__", heard(said)),
        patch.object(WhyNoPartitionReporter, "report_reject", heard(reported)),
    ):
        yield reasons
