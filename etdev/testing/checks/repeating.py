"""Checks of repetition: the same plan in another process, the same bytes, beside other methods."""

from __future__ import annotations

import hashlib
import os
import pickle
import time
from collections.abc import Iterator
from typing import Any

from torch.export import ExportedProgram

from etdev.runtime.child import Child
from etdev.testing.contract import contract
from etdev.testing.programs import PROGRAMS, Layer, Pointwise, noted
from etdev.testing.simulation import named_data
from etdev.testing.subject import Skipped, Subject, delegates


@contract(
    "the same program gets the same plan and bytes in another process, with another PYTHONHASHSEED",
    "the order of a set of text differs between processes",
)
def hash_seeds(subject: Subject) -> None:
    if not subject.requirements.other_process:
        raise Skipped("requirements.other_process is off")
    known = subject.programs(*PROGRAMS)
    for program, (there, others) in zip(known, _made_elsewhere(subject), strict=True):
        here, payloads = _made(subject, program)
        # They differ in some line that both have.
        for other, own in zip(there.splitlines(), here.splitlines(), strict=False):
            assert other == own, f"another process plans it in another way: {other}, not {own}"
        assert payloads == others, "another process compiles it to other bytes"
        subject.looked |= bool(payloads)


def _made(subject: Subject, program: ExportedProgram) -> tuple[str, str]:
    """Return a plan, and what identifies the plugin's delegates; empty if it claims nothing."""
    plan = subject.lowerer().plan(program)
    mine = str(sorted(subject.owned(plan["forward"])) or "")
    if mine and subject.requirements.same_bytes and not subject.unfit():
        mine = hashlib.sha256(repr(_payloads(subject, program, 0)).encode()).hexdigest()
    return plan.to_json(), mine


def _made_elsewhere(subject: Subject) -> list[tuple[str, str]]:
    """Return the same of all programs from a process with another seed of text's hashes."""
    away = "it can't be sent to another process"
    try:
        # It comes with loky, and can send classes that a test module defines.
        import cloudpickle

        data = cloudpickle.dumps((subject.make(), subject.models, subject.requirements))
    except Exception as error:
        raise Skipped(f"{away}: {error}") from error
    seed = "4711" if os.environ.get("PYTHONHASHSEED") != "4711" else "4712"
    child = Child("the plugin", {"PYTHONHASHSEED": seed})
    try:
        outcome = child.run(_make_all, data)
    finally:
        child.close()
    if not outcome.values:
        raise Skipped(f"{away}: {outcome.failure}")
    assert outcome.failure is None, f"it fails in another process: {outcome.failure}"
    return list(outcome.values[1:])


def _make_all(data: bytes) -> Iterator[tuple[str, str]]:
    """Yield empty texts once the plugin has arrived, then the plans and delegates."""
    _, models, requirements = pickle.loads(data)
    there = Subject(lambda: pickle.loads(data)[0], requirements, models=models)
    yield "", ""
    for program in there.programs(*PROGRAMS):
        yield _made(there, program)


@contract(
    "its compiler gives the same bytes for the same program",
    "a rebuilt release must be the same, and the compile cache keeps one result",
)
def same_bytes(subject: Subject) -> None:
    if not subject.requirements.same_bytes:
        raise Skipped("requirements.same_bytes is off")
    subject.compiling()
    known = [(program, _payloads(subject, program, 0)) for program in subject.programs(*PROGRAMS)]
    # The second of the day may be among the bytes.
    time.sleep(1.1)
    for program, first in known:
        second = _payloads(subject, noted(program), 1)
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
