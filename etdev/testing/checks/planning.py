"""Checks of planning: a plugin answers, gives reasons, and changes nothing of the caller."""

from __future__ import annotations

import ctypes
import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from typing import Any

from torch.export import ExportedProgram

from etdev.hookspecs import API
from etdev.registry import answers
from etdev.registry.manifest import manifest_in
from etdev.registry.snapshot import Snapshot
from etdev.schema.reasons import RESERVED, SILENT
from etdev.testing import global_settings
from etdev.testing.contract import contract
from etdev.testing.programs import PROGRAMS, Layer, Pointwise, Shared
from etdev.testing.subject import Skipped, Subject

# Plans of a program, at least and at most, and the seconds after which the least are enough. A
# plugin that tosses a coin gives the same plan many times in a row.
_LEAST, _MOST, _ENOUGH_S = 8, 64, 0.5
# Letters of a reason, which is a cell of a table.
_LONGEST = 1_000


@contract(
    "it has etdev's hooks, says for which version of them it was written, and its manifest agrees",
    "a newer etdev can then leave it out with a warning, instead of calling it wrongly",
)
def api(subject: Subject) -> None:
    own = subject.plugin.implementation
    said = getattr(own, "etdev_api", None)
    assert said is not None, f"it has no etdev_api; write etdev_api = {API} in its class"
    if manifest := manifest_in(type(own).__module__):
        versions = said if isinstance(said, tuple) else (said,)
        listed = manifest.etdev_api, sorted(manifest.hooks)
        had = versions, list(subject.plugin.hooks)
        assert listed == had, f"its manifest says {listed} where the class has {had}"
    subject.looked = True


@contract(
    "its probe answers with a Probe within a second",
    "`etdev plugins` calls every probe and must stay quick",
)
def probe(subject: Subject) -> None:
    plugin = subject.plugin
    if "probe" not in plugin.hooks:
        raise Skipped("it has no probe")
    start = time.perf_counter()
    answers.probe(plugin)
    if subject.requirements.quick_probe:
        seconds = time.perf_counter() - start
        assert seconds < 1, f"it took {seconds:.1f} s; do slow work in compile_context"
    subject.looked = True


@contract(
    "it plans every small program, with claims that the host can keep",
    "the host rejects claims of unknown nodes, cyclic partitions, and changes of the graph",
)
def claims(subject: Subject) -> None:
    for _ in subject.claimed(*PROGRAMS):
        subject.looked = True


@contract(
    "the same program gets the same plan from a new plugin and from one that was used before",
    "the same model must give the same bytes, today and in a process that lowers many",
)
def repeatable(subject: Subject) -> None:
    for program in subject.programs(Pointwise, Layer):
        used, plans, start = subject.lowerer(), [], time.perf_counter()
        for number in range(_MOST):
            if number >= _LEAST and time.perf_counter() - start > _ENOUGH_S:
                break
            lowerer = subject.lowerer() if number % 2 else used
            subject.reseed(number)
            plans.append(lowerer.plan(program))
        texts = {plan.to_json() for plan in plans}
        assert len(texts) == 1, f"it got {len(texts)} different plans"
        subject.looked |= bool(subject.owned(plans[0]["forward"]))


@contract(
    "it changes neither the program nor its weights, and prints nothing to stdout",
    "users keep using their model, and `etdev plan --json` prints to stdout",
)
def callers_own(subject: Subject) -> None:
    for program in subject.programs(Layer):
        before = Snapshot.of(program)
        with _quiet():
            subject.lower(subject.lowerer(), program)
        changed = before.difference(program)
        assert not changed, f"{changed} changed"


@contextmanager
def _quiet() -> Iterator[None]:
    """Refuse what Python, C or another process writes to standard output meanwhile."""
    with tempfile.TemporaryFile("w+", errors="replace") as file:
        saved = os.dup(1)
        os.dup2(file.fileno(), 1)
        try:
            with redirect_stdout(file):
                yield
        finally:
            # C has a buffer of its own.
            ctypes.CDLL(None).fflush(None)
            os.dup2(saved, 1)
            os.close(saved)
        file.seek(0)
        text = file.read()
    assert not text, f"it printed {text[:60]!r}"


@contract(
    "its hooks and its compiler leave torch's and Python's settings as they were",
    "the user's code and other plugins run in the same process; the host does not check",
)
def settings(subject: Subject) -> None:
    for program in subject.programs(Layer):
        # The first time also imports modules, which may change more.
        _setting_changes(subject, program)
        changes = _setting_changes(subject, program)
        assert not changes, "; ".join(dict.fromkeys(changes))


def _setting_changes(subject: Subject, program: ExportedProgram) -> list[str]:
    """Plan, and compile where that works here; return which hook changed which setting."""
    changes: list[str] = []
    lowerer = subject.lowerer()
    plugin, *_ = lowerer.plugins
    before: list[Any] = []

    def after(_: object, hook: str, *__: object) -> None:
        values = before.pop()
        # A compile context changes settings on purpose, until it ends.
        if hook != "compile_context":
            changed = global_settings.put_back(values)
            changes.extend(f"{hook} changed {each}" for each in changed)

    all_before = global_settings.read()
    stop = plugin.manager.add_hookcall_monitoring(
        lambda *_: before.append(global_settings.read()), after
    )
    try:
        subject.lower(lowerer, program)
    finally:
        stop()
        late = global_settings.put_back(all_before)
    return changes + [f"compiling changed {change}" for change in late]


@contract(
    "it gives a reason for every node that it doesn't claim",
    "the reasons tell users why a model is slow",
)
def reasons(subject: Subject) -> None:
    if not subject.requirements.reasons:
        raise Skipped("requirements.reasons is off")
    for program in subject.programs(Pointwise, Layer, Shared):
        ledger = subject.lowerer().plan(program)["forward"].ledger
        said = [(e.node, v) for e in ledger for v in e.verdicts if v.plugin == subject.name]
        silent = [node for node, verdict in said if verdict.code == SILENT.code]
        assert not silent, f"it gives no reason for {', '.join(silent)}"
        for node, verdict in [(n, v) for n, v in said if v.code not in RESERVED]:
            size = len(verdict.text)
            assert verdict.text.strip(), f"it gives no text with the code of its reason for {node}"
            assert size <= _LONGEST, f"its reason for {node} has {size} letters: {verdict}"[:200]
            subject.looked = True
    if not subject.looked:
        raise Skipped("it refuses no node of the programs")
