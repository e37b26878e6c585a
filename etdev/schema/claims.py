"""The claims of a plugin: nodes in atomic groups, refusals, and ops to keep whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from attrs import field, frozen
from attrs.validators import deep_iterable, instance_of, min_len, optional

from etdev.errors import ClaimError, DeviceError
from etdev.schema.converters import frozen_tuple, node_name, node_names, one_line, refusing
from etdev.schema.device import Device
from etdev.schema.partition import CompileSpec, compile_specs

if TYPE_CHECKING:
    from torch.fx import Node

    Predicate = Callable[[Node], bool]

# An overload such as `torch.ops.aten.linear.default`; torch has no public name for its type.
Op = Any


# Separate converters, since a type checker takes the types of a constructor from them.
def _groups(value: Iterable[Group]) -> tuple[Group, ...]:
    return frozen_tuple(value)


def _refusals(value: Iterable[Refusal]) -> tuple[Refusal, ...]:
    return frozen_tuple(value)


def _texts(value: Iterable[str]) -> tuple[str, ...]:
    return frozen_tuple(value)


def _check_last_resort(claim: Claim, _: object, value: bool) -> None:
    if value and claim.backend_id is not None:
        raise ClaimError("claim", f"is a last resort for {claim.backend_id}", "leave out one")


def _check_kind(_: object, __: object, value: Any) -> None:
    try:
        Device(value)
    except DeviceError as error:
        raise ClaimError("claim", error.what, error.cure) from None


@refusing(ClaimError, "claim")
@frozen
class Group:
    """Nodes that one partition takes all of or none, such as a quantised pattern.

    Args:
        nodes: torch.fx nodes or their names. Constants may be among them: those are the ones the
            group needs inside (`Constant.grouped`). Getitems follow their op by themselves.
        why: The pattern that matched, for the ledger.
        whole: Let no other plugin have some of the nodes and not all, as of a quantised layer that
            is large and slow in pieces. Claim it although `taken` has nodes of it.
    """

    nodes: tuple[str, ...] = field(converter=node_names, validator=min_len(1))
    why: str = field(default="", validator=instance_of(str))
    whole: bool = field(default=False, validator=instance_of(bool))


@refusing(ClaimError, "claim")
@frozen
class Refusal:
    """A plugin's reason not to want a node.

    Args:
        node: The torch.fx node or its name.
        code: A short reason to group by, such as `op`, `dtype` or `shape`.
        text: The reason in words.
    """

    node: str = field(converter=node_name)
    code: str = field(validator=one_line)
    text: str = field(default="", validator=instance_of(str))


@refusing(ClaimError, "claim")
@frozen
class Claim:
    """The nodes of one method that a plugin wants for a backend, or keeps in the program.

    Args:
        backend_id: Name of the ExecuTorch backend that runs the partitions. None for a plugin whose
            kernels the runtime calls op by op: the nodes stay in the method's program, so that they
            form no partition and have no limits, constants or device.
        groups: The nodes, in atomic groups. A single node is a group of one.
        refusals: The nodes it does not want, and why. Only for the ledger.
        compile_specs: Given to the backend with every partition of this claim; ExecuTorch's
            CompileSpec objects or a mapping of key to bytes. Leave `target_device` to the host.
        device_types: Device types that the backend runs on; other devices, pinned or resolved, are
            an error. The default device is the CPU if it is among them, else `:0` of the first.
            A type that ExecuTorch doesn't have, such as `npu`, is for a backend that takes its
            tensors from the host's memory: nothing is copied, and the spec `etdev_device` tells
            the backend which one, as `npu:1`.
        named_data: The backend puts constants into ExecuTorch's named data under keys made of their
            content, so that all of its delegates together store a constant once.
        merge: Let the host join groups into the largest convex partitions. False keeps every
            group a partition of its own.
        compiler: Name of the ExecuTorch backend whose `preprocess` compiles the partitions, if
            that is not `backend_id`. If its class has an attribute `equals` that is `backend_id`,
            it gives the same bytes as that backend, or others of the same meaning, and that backend
            compiles in its place where ExecuTorch is in charge. Otherwise `etdev.partitioner` is an
            error, whose cure ends with the text `instead` of the class, if it has one.
        last_resort: Take the groups only where no plugin claims or decomposes their nodes. For
            kernels that are wrong for some values: `Group.why` says so in the ledger. Only without
            a backend.
        specialises: The backend compiles for the sizes of the example, which fixes dynamic sizes of
            the whole method. The plan says so, and the audit allows it.
        caveats: The nodes it takes though the backend computes some values, such as NaN,
            differently from PyTorch, and how. The plan's summary has a line for all nodes with the
            same text.
    """

    backend_id: str | None = field(validator=optional(one_line))
    groups: tuple[Group, ...] = field(
        converter=_groups, validator=deep_iterable(instance_of(Group))
    )
    refusals: tuple[Refusal, ...] = field(
        default=(), converter=_refusals, validator=deep_iterable(instance_of(Refusal))
    )
    compile_specs: tuple[CompileSpec, ...] = field(default=(), converter=compile_specs)
    device_types: tuple[str, ...] = field(
        default=("cpu",), converter=_texts, validator=[deep_iterable(_check_kind), min_len(1)]
    )
    named_data: bool = field(default=False, validator=instance_of(bool))
    merge: bool = field(default=True, validator=instance_of(bool))
    compiler: str | None = field(default=None, validator=optional(one_line))
    last_resort: bool = field(default=False, validator=[instance_of(bool), _check_last_resort])
    caveats: tuple[Refusal, ...] = field(
        default=(), converter=_refusals, validator=deep_iterable(instance_of(Refusal))
    )
    specialises: bool = field(default=False, validator=instance_of(bool))


@refusing(ClaimError, "claim")
@frozen
class KeepWhole:
    """ATen ops that a plugin wants to see whole, not decomposed.

    Args:
        ops: Overloads, such as `torch.ops.aten.linear.default`.
        when: Asked for each ATen node of those ops; only True keeps it. None keeps all.
        decomposes: Overloads that the plugin's hook `decompose` is asked about, and not the tables
            of torch and ExecuTorch. The plugin is shown their pieces, unless `ops` has them too.
    """

    ops: tuple[Op, ...] = field(converter=frozen_tuple)
    when: Predicate | None = field(default=None)
    decomposes: tuple[Op, ...] = field(default=(), converter=frozen_tuple)

    def wants(self, node: Any) -> bool:
        """Return True if this ATen node stays whole for the plugin."""
        return node.target in self.ops and (self.when is None or bool(self.when(node)))
