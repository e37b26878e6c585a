"""Checks of repetition: the same program gets the same plan and bytes every time."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

from executorch.exir.lowered_backend_module import get_lowered_submodules

from etdev.lowerer import Lowerer
from etdev.registry import Registry
from etdev.runtime.child import Child
from etdev.testing import programs
from etdev.testing.contract import contract
from etdev.testing.programs import PROGRAMS, Layer, Pointwise, exported
from etdev.testing.subject import Skipped, Subject


@contract(
    "the same program gets the same plan from a new plugin and from one that was used before",
    "the same model must give the same bytes, today and in a process that lowers many",
)
def repeatable(subject: Subject) -> None:
    for kind in (Pointwise, Layer):
        lowerer = subject.lowerer()
        plans = [lowerer.plan(exported(kind)) for _ in range(2)]
        plans.append(subject.lowerer().plan(exported(kind)))
        texts = {plan.to_json() for plan in plans}
        assert len(texts) == 1, f"it got {len(texts)} different plans"


@contract(
    "the same program gets the same plan in another process, under another PYTHONHASHSEED",
    "the order of a set of text differs between processes",
)
def hash_seeds(subject: Subject) -> None:
    if not subject.requirements.other_process:
        raise Skipped("requirements.other_process is off")
    for kind, there in zip(PROGRAMS, _planned_elsewhere(subject.make()), strict=True):
        here = subject.lowerer().plan(exported(kind)).to_json()
        assert there == here, _difference(here, there)


def _planned_elsewhere(plugin: object) -> list[str]:
    """Return the plans of all programs, made in a process with another seed of text's hashes."""
    away = "it can't be sent to another process"
    try:
        # It comes with loky, and can send classes that a test module defines.
        import cloudpickle

        data = cloudpickle.dumps(plugin)
    except Exception as error:
        raise Skipped(f"{away}: {error}") from error
    child = Child("the plugin", {"PYTHONHASHSEED": "4711"})
    try:
        outcome = child.run(_plans, data)
    finally:
        child.close()
    if outcome.failure is not None:
        raise Skipped(f"{away}: {outcome.failure}")
    return list(outcome.values)


def _plans(data: bytes) -> Iterator[str]:
    for kind in PROGRAMS:
        plugin: Any = pickle.loads(data)
        yield Lowerer([plugin], registry=Registry()).plan(exported(kind)).to_json()


def _difference(here: str, there: str) -> str:
    """Describe the first line in which two plans differ."""
    pairs = zip(here.splitlines(), there.splitlines(), strict=False)
    lines = [(a.strip(), b.strip()) for a, b in pairs if a != b]
    own, other = lines[0] if lines else ("", "")
    return f"another process plans it in another way: {other[:200]} and not {own[:200]}"


@contract(
    "its compiler gives the same bytes for the same program",
    "a rebuilt release must be the same, and the compile cache keeps one result",
)
def same_bytes(subject: Subject) -> None:
    if not subject.requirements.same_bytes:
        raise Skipped("requirements.same_bytes is off")
    if not subject.owned(subject.lowerer().plan(exported(Layer))["forward"]):
        raise Skipped("it claims nothing of the program")
    subject.compiling()
    first, second = (_payloads(subject) for _ in range(2))
    assert first == second, "compiled twice, its delegates have other bytes"


def _payloads(subject: Subject) -> list[bytes]:
    program = subject.lowerer().lower(exported(Layer)).edge.exported_program()
    modules = get_lowered_submodules(program.graph_module)
    return [bytes(module.processed_bytes) for _, module, _ in modules]


@contract(
    "the plan of a method does not depend on other methods",
    "programs have several methods, such as a prefill and a decode step",
)
def methods(subject: Subject) -> None:
    both = programs.methods()
    plan = subject.lowerer().plan(both)
    turned = subject.lowerer().plan(dict(reversed(both.items())))
    for name, one in both.items():
        alone = subject.lowerer().plan({name: one})[name]
        # For the message, as these programs are exported by the lowerer.
        exported(type(one[0]))
        apart = [(p.nodes, p.constants, p.device) for p in alone.partitions]
        for other in (plan, turned):
            own = [(p.nodes, p.constants, p.device) for p in other[name].partitions]
            assert own == apart, f"method {name!r} gets another plan next to another method"
