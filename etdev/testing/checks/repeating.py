"""Checks of repetition: the same plan in another process, the same bytes, beside other methods."""

from __future__ import annotations

import os
import pickle
from collections.abc import Iterator
from typing import Any

from torch.export import ExportedProgram

from etdev.runtime.child import Child
from etdev.testing.contract import contract
from etdev.testing.programs import PROGRAMS, Layer, Pointwise, noted
from etdev.testing.simulation import named_data
from etdev.testing.subject import Skipped, Subject, delegates


@contract(
    "the same program gets the same plan in another process, under another PYTHONHASHSEED",
    "the order of a set of text differs between processes",
)
def hash_seeds(subject: Subject) -> None:
    if not subject.requirements.other_process:
        raise Skipped("requirements.other_process is off")
    known = subject.programs(*PROGRAMS)
    for program, there in zip(known, _planned_elsewhere(subject), strict=True):
        here = subject.lowerer().plan(program)
        # They differ in some line that both have.
        for other, own in zip(there.splitlines(), here.to_json().splitlines(), strict=False):
            assert other == own, f"another process plans it in another way: {other}, not {own}"
        subject.looked |= bool(subject.owned(here["forward"]))


def _planned_elsewhere(subject: Subject) -> list[str]:
    """Return the plans of all programs, made in a process with another seed of text's hashes."""
    away = "it can't be sent to another process"
    try:
        # It comes with loky, and can send classes that a test module defines.
        import cloudpickle

        data = cloudpickle.dumps((subject.make(), subject.models))
    except Exception as error:
        raise Skipped(f"{away}: {error}") from error
    seed = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "4712"
    child = Child("the plugin", {"PYTHONHASHSEED": seed})
    try:
        outcome = child.run(_plans, data)
    finally:
        child.close()
    if not outcome.values:
        raise Skipped(f"{away}: {outcome.failure}")
    assert outcome.failure is None, f"it can't plan in another process: {outcome.failure}"
    return list(outcome.values[1:])


def _plans(data: bytes) -> Iterator[str]:
    """Yield an empty text once the plugin has arrived, then the plans."""
    _, models = pickle.loads(data)
    there = Subject(lambda: pickle.loads(data)[0], models=models)
    yield ""
    for program in there.programs(*PROGRAMS):
        yield there.lowerer().plan(program).to_json()


@contract(
    "its compiler gives the same bytes for the same program",
    "a rebuilt release must be the same, and the compile cache keeps one result",
)
def same_bytes(subject: Subject) -> None:
    if not subject.requirements.same_bytes:
        raise Skipped("requirements.same_bytes is off")
    subject.compiling()
    for program in subject.programs(*PROGRAMS):
        first, second = (_payloads(subject, program, seed) for seed in range(2))
        assert first == second, "compiled twice, its delegates have other bytes"
        subject.looked |= bool(first)


def _payloads(subject: Subject, program: ExportedProgram, seed: int) -> list[tuple[bytes, Any]]:
    """Return the bytes and the named data of all delegates."""
    lowerer = subject.lowerer()
    subject.reseed(seed)
    modules = delegates(lowerer.lower(program))
    return [(bytes(module.processed_bytes), named_data(module)) for module in modules]


@contract(
    "the plan of a method does not depend on other methods",
    "programs have several methods, such as a prefill and a decode step",
)
def methods(subject: Subject) -> None:
    # Two of one shape, which a plugin that ignores the method's name confuses.
    together = {f"method_{n}": p for n, p in enumerate(subject.programs(Layer, Pointwise))}
    plan = subject.lowerer().plan(together)
    turned = subject.lowerer().plan(dict(reversed(together.items())))
    for name, program in together.items():
        alone = subject.lowerer().plan({name: noted(program)})[name]
        apart = [(p.nodes, p.constants, p.device) for p in alone.partitions]
        for other in (plan, turned):
            own = [(p.nodes, p.constants, p.device) for p in other[name].partitions]
            assert own == apart, f"method {name!r} gets another plan next to another method"
        subject.looked |= bool(subject.owned(alone))
