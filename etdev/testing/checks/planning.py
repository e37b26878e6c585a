"""Checks of planning: a plugin answers, gives reasons, and changes nothing of the caller."""

from __future__ import annotations

import contextlib
import io
import time
from typing import Any

from etdev.graph.snapshot import Snapshot
from etdev.hookspecs import API
from etdev.registry import answers
from etdev.testing import global_settings
from etdev.testing.contract import contract
from etdev.testing.programs import PROGRAMS, Layer, Pointwise, Shared, exported
from etdev.testing.subject import Skipped, Subject


@contract(
    "its probe answers with a Probe within a second",
    "`etdev plugins` calls every probe and must stay quick",
)
def probe(subject: Subject) -> None:
    start = time.perf_counter()
    answers.probe(subject.plugin)
    if subject.requirements.quick_probe:
        seconds = time.perf_counter() - start
        assert seconds < 1, f"it took {seconds:.1f} s; do slow work in compile_context"


@contract(
    "it says which version of the hooks it was written for",
    "a newer etdev can then leave it out with a warning, instead of calling it wrongly",
)
def api(subject: Subject) -> None:
    said = getattr(subject.plugin.implementation, "etdev_api", None)
    assert said is not None, f"it has no etdev_api; write etdev_api = {API} in its class"


@contract(
    "it plans every small program, with claims that the host can keep",
    "the host rejects claims of unknown nodes, cyclic partitions, and changes of the graph",
)
def claims(subject: Subject) -> None:
    for kind in PROGRAMS:
        subject.lowerer().plan(exported(kind))


@contract(
    "it changes neither the program nor its weights, and prints nothing to stdout",
    "users keep using their model, and `etdev plan --json` prints to stdout",
)
def callers_own(subject: Subject) -> None:
    program = exported(Layer)
    before, out = Snapshot.of(program), io.StringIO()
    with contextlib.redirect_stdout(out):
        subject.lowerer().plan(program)
    changed = before.difference(program)
    assert not changed, f"{changed} changed"
    assert not out.getvalue(), f"it printed {out.getvalue()[:60]!r}"


@contract(
    "its hooks and its compiler leave torch's and Python's settings as they were",
    "the user's code and other plugins run in the same process; the host does not check",
)
def settings(subject: Subject) -> None:
    # The first time also imports modules, which may change more.
    _setting_changes(subject)
    changes = _setting_changes(subject)
    assert not changes, "; ".join(dict.fromkeys(changes))


def _setting_changes(subject: Subject) -> list[str]:
    """Plan, and compile where that works here; return which hook changed which setting."""
    changes: list[str] = []
    lowerer = subject.lowerer()
    plugin, *_ = lowerer.plugins
    before: list[Any] = []

    def after(_: object, hook: str, *__: object) -> None:
        values = before.pop()
        # A compile context changes settings on purpose, until it ends.
        if hook != "compile_context":
            changes.extend(
                f"{hook} changed {change}" for change in global_settings.put_back(values)
            )

    all_before = global_settings.read()
    stop = plugin.manager.add_hookcall_monitoring(
        lambda *_: before.append(global_settings.read()), after
    )
    try:
        _ = (lowerer.plan if subject.unfit(plugin) else lowerer.lower)(exported(Layer))
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
    for kind in (Pointwise, Layer, Shared):
        ledger = subject.lowerer().plan(exported(kind))["forward"].ledger
        silent = [e.node for e in ledger for v in e.verdicts if v.code == "silent"]
        assert not silent, f"it gives no reason for {', '.join(silent)}"
