"""Travel: a call of a backend as bytes, and back.

What travels is a program as ExecuTorch saves it, its arrangement, its weights beside it, and how to
make the plugin again. A call has the same key in the cache after its travel as before, or it is
compiled where it was.
"""

from __future__ import annotations

import io
import json
import warnings
from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

import executorch.exir as exir
from attrs import frozen
from torch import Tensor
from torch.export import ExportedProgram
from torch.export.graph_signature import ExportGraphSignature

from etdev.delegate.backends import find_backend
from etdev.delegate.compiler_calls import Call
from etdev.delegate.executors.arrangement import arrange, arrangement
from etdev.delegate.executors.plain import Stays
from etdev.delegate.executors.recipe import follow, named, recipe
from etdev.delegate.executors.storages import Weights, weights
from etdev.delegate.jobs import Job
from etdev.delegate.split import unchecked
from etdev.errors import EtdevError, first_line
from etdev.graph.rebuild import extracted
from etdev.graph.signature import renamed
from etdev.registry.plugin import Plugin
from etdev.schema.ledger import Ledger
from etdev.schema.plan import MethodPlan, Plan
from etdev.upstream.exported import with_parts


@frozen
class Parcel:
    """A call that can travel.

    Args:
        head: What it is, as JSON.
        programs: The programs of its jobs, saved without weights.
        storages: Numbers of the storages of its weights, in the order of the head's.
    """

    head: str
    programs: tuple[bytes, ...]
    storages: tuple[int, ...]


@frozen(eq=False)
class Traveled(Job):
    """A job whose program came from elsewhere, so that nothing else reads it."""

    def copied(self) -> ExportedProgram:
        """The program itself."""
        return self.program


def pack(call: Call, plugin: Plugin, known: Weights) -> Parcel:
    """Make a parcel of a call.

    Args:
        call: The call.
        plugin: Its plugin.
        known: Gets the storages of its weights.

    Raises:
        Stays: Something of it can't travel.
    """
    place = f"{call.backend.__module__}:{call.backend.__qualname__}"
    if place.startswith("__main__:") or "<" in place:
        raise Stays(f"{call.backend.__qualname__} can't be imported")
    own = Weights()
    jobs = [_packed(job, own) for job in call.jobs]
    head = {
        "backend": place,
        "together": call.together,
        "plugin": recipe(plugin),
        "plan": _plan(call.jobs).to_dict(),
        "jobs": [about for about, _ in jobs],
    }
    numbers = tuple(map(known.add, own.storages))
    return Parcel(json.dumps(head), tuple(program for _, program in jobs), numbers)


def _packed(job: Job, own: Weights) -> tuple[dict[str, Any], bytes]:
    program = job.program
    about = {
        "nodes": arrangement(program.graph),
        "state": own.describe(program.state_dict),
        "constants": own.describe(program.constants),
    }
    return about, _saved(program)


def _saved(program: ExportedProgram) -> bytes:
    """What ExecuTorch saves of a program without its weights."""
    bare = with_parts(program, state_dict={}, constants={})
    file = io.BytesIO()
    try:
        with warnings.catch_warnings():
            # Of torch's about its own way of copying, which a user can't mend.
            warnings.simplefilter("ignore", FutureWarning)
            exir.save(bare, file)
    except Exception as error:
        raise Stays(f"ExecuTorch can't save it: {first_line(error)}") from error
    return file.getvalue()


def _plan(jobs: Sequence[Job]) -> Plan:
    """A plan that has the partitions of some jobs, to be written down."""
    methods: dict[str, list[Job]] = {}
    for job in jobs:
        methods.setdefault(job.partition.method, []).append(job)
    return Plan(
        tuple(
            MethodPlan(name, tuple(job.partition for job in own), (), (), (), Ledger(()))
            for name, own in methods.items()
        )
    )


@frozen(eq=False)
class Arrival:
    """A parcel that is being unpacked.

    Args:
        parcel: The parcel.
        head: What it is.
        plugin: The plugin, made again.
    """

    parcel: Parcel
    head: dict[str, Any]
    plugin: Plugin
    plan: Plan

    @classmethod
    def of(cls, parcel: Parcel) -> Arrival:
        """Read the head of a parcel, and make the plugin.

        Raises:
            Stays: The plugin can't be made here.
        """
        head = json.loads(parcel.head)
        return cls(parcel, head, follow(head["plugin"]), Plan.from_json(json.dumps(head["plan"])))

    def call(self, storage: Callable[[int], Tensor]) -> Call:
        """The call, inside the compile context of the plugin.

        Args:
            storage: Gives the bytes of a storage, by its place in the parcel.

        Raises:
            Stays: It is not what was packed.
        """
        module = self.head["backend"].partition(":")[0]
        try:
            import_module(module)
            # As where it comes from; a plugin may have loaded another of that name.
            backend = find_backend(self.plan.partitions[0], self.plugin)
            same = backend is named(self.head["backend"])
        except (ImportError, AttributeError, EtdevError) as error:
            raise Stays(f"{self.head['backend']} can't be had there: {error}") from error
        if not same:
            raise Stays(f"there is another {backend.__name__} there")
        described = zip(self.plan.partitions, self.head["jobs"], self.parcel.programs, strict=True)
        jobs = tuple(
            Traveled(partition, _loaded(program, about, storage), None)  # type: ignore[arg-type]
            for partition, about, program in described
        )
        return Call(backend, jobs, self.head["together"])


def _loaded(
    saved: bytes, about: dict[str, Any], storage: Callable[[int], Tensor]
) -> ExportedProgram:
    try:
        bare = exir.load(io.BytesIO(saved))
    except Exception as error:
        raise Stays(f"ExecuTorch can't load it: {first_line(error)}") from error
    graph, names = arrange(bare, about["nodes"])
    bare.state_dict.update(weights(about["state"], storage))
    bare.constants.update(weights(about["constants"], storage))
    old = bare.graph_signature
    signature = ExportGraphSignature(
        input_specs=old.input_specs,
        output_specs=[renamed(spec, names) for spec in old.output_specs],
    )
    return extracted(bare, graph, signature, {}, unchecked())
