"""The contract: what every plugin keeps to, whatever its backend; each part as a check."""

from __future__ import annotations

import contextlib
import copy
import io
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from attrs import define, frozen

from etdev.errors import EtdevError, PluginError, first_line
from etdev.graph.snapshot import Snapshot
from etdev.lowerer import Lowerer
from etdev.registry import Registry, answers
from etdev.registry.selection import from_object
from etdev.schema.device import Device
from etdev.schema.plan import MethodPlan
from etdev.testing import programs
from etdev.testing.execution import assert_eager, can_run
from etdev.testing.fakes import Accelerator
from etdev.testing.programs import PROGRAMS, Branch, Counter, Layer, Pointwise, Shared, exported


@frozen
class Requirements:
    """What the kit may ask of a plugin; each that is switched off is skipped with a line.

    Args:
        reasons: It says of every node that it doesn't claim why.
        compiles: Its backend's compiler works on this machine.
        quick_probe: Its probe answers within a second.
        tolerance: Largest error relative to the largest value of an output.
        dtypes: Of the inputs that values are compared in.
        special: NaN and infinities come out as in PyTorch.
    """

    reasons: bool = True
    compiles: bool = True
    quick_probe: bool = True
    tolerance: float = 1e-5
    dtypes: tuple[str, ...] = ("float32", "float16", "int32", "int64")
    special: bool = True


class Skipped(Exception):
    """A check does not apply; the text is the reason."""


@define(eq=False)
class Subject:
    """The plugin that is looked at.

    Args:
        make: Makes it, a new one each time.
        requirements: What may be asked of it.
    """

    make: Callable[[], object]
    requirements: Requirements

    def lowerer(self, *others: object, first: object = None) -> Lowerer:
        """The plugin with others behind it, and one before it."""
        plugins = [*([first] if first else ()), self.make(), *others]
        return Lowerer(plugins, registry=Registry())

    @property
    def name(self) -> str:
        """What the plugin is called."""
        return from_object(self.make()).name

    def compiling(self) -> None:
        """Skip what is compiled where nothing can be."""
        if not self.requirements.compiles:
            raise Skipped("requirements.compiles is off")
        if reason := answers.probe(from_object(self.make())).unfit:
            raise Skipped(f"it can't compile here: {reason}")


@frozen(eq=False)
class Check:
    """A part of the contract.

    Args:
        name: What it is called in reports.
        wants: What the contract wants, in a sentence.
        why: What goes wrong for users otherwise.
        call: Raises what is broken: an AssertionError, or what the host says.
    """

    name: str
    wants: str
    why: str
    call: Callable[[Subject], None]


class Broken(AssertionError):
    """A check failed: what the contract wants, why, the smallest graph, and what happened."""

    def __init__(self, check: Check, graph: str, error: BaseException) -> None:
        said = str(error) if isinstance(error, (EtdevError, AssertionError)) else first_line(error)
        text = f"{check.name}: {check.wants}\n  why: {check.why}\n  what happened: {said}"
        super().__init__(text + (f"\n  the smallest graph:\n{graph}" if graph else ""))
        self.check = check


_GRAPH: list[str] = []


@contextmanager
def on(program: Any) -> Iterator[None]:
    """Note the program that is looked at, for the message."""
    graph = program.graph if hasattr(program, "graph") else ""
    _GRAPH[:] = [str(graph).strip()]
    yield


def perform(check: Check, subject: Subject) -> None:
    """Do a check.

    Raises:
        Broken: The plugin breaks this part of the contract.
        Skipped: It does not apply.
    """
    _GRAPH.clear()
    try:
        check.call(subject)
    except Skipped:
        raise
    except Exception as error:
        raise Broken(check, "\n".join(_GRAPH), error) from error


CHECKS: list[Check] = []


def contract(wants: str, why: str) -> Callable[[Callable[[Subject], None]], Any]:
    """Make a check of a function and add it to the contract."""

    def add(call: Callable[[Subject], None]) -> Callable[[Subject], None]:
        CHECKS.append(Check(call.__name__, wants, why, call))
        return call

    return add


@contract(
    "its probe answers with a Probe within a second",
    "`etdev plugins` asks every plugin and must stay quick",
)
def probe(subject: Subject) -> None:
    start = time.perf_counter()
    answers.probe(from_object(subject.make()))
    if subject.requirements.quick_probe:
        seconds = time.perf_counter() - start
        assert seconds < 1, f"it took {seconds:.1f} s; leave what is slow to compile_context"


@contract(
    "it plans every small program, with claims that the host can keep",
    "the host refuses what names no node, tears the graph, or changes it or the process",
)
def claims(subject: Subject) -> None:
    for kind in PROGRAMS:
        with on(exported(kind)):
            subject.lowerer().plan(exported(kind))


@contract(
    "nothing of the caller's changes: program, weights, or what is on stdout",
    "users go on with their model, and `etdev plan --json` prints to stdout",
)
def callers_own(subject: Subject) -> None:
    program = exported(Layer)
    before, out = Snapshot.of(program), io.StringIO()
    with on(program), contextlib.redirect_stdout(out):
        subject.lowerer().plan(program)
    changed = before.difference(program)
    assert not changed, f"{changed} changed"
    assert not out.getvalue(), f"it printed {out.getvalue()[:60]!r}"


@contract(
    "the same program gets the same plan, from a new plugin and from one that was asked before",
    "the same model must give the same bytes, today and in a process that lowers many",
)
def repeatable(subject: Subject) -> None:
    for kind in (Pointwise, Layer):
        with on(exported(kind)):
            lowerer = subject.lowerer()
            plans = [lowerer.plan(exported(kind)) for _ in range(2)]
            plans.append(subject.lowerer().plan(exported(kind)))
            texts = {plan.to_json() for plan in plans}
            assert len(texts) == 1, f"it got {len(texts)} different plans"


@contract(
    "a plugin behind it changes nothing, one before it only what that one took",
    "who installs another backend must not lose what this one does",
)
def beside_others(subject: Subject) -> None:
    alone = _owned(subject, subject.lowerer().plan(exported(Pointwise))["forward"])
    rival = Accelerator("rival", ops=("mul",))
    with on(exported(Pointwise)):
        behind = subject.lowerer(rival).plan(exported(Pointwise))["forward"]
        assert _owned(subject, behind) == alone, "a plugin behind it changed what it has"
        after = subject.lowerer(first=rival).plan(exported(Pointwise))["forward"]
    taken = {entry.node for entry in after.ledger if entry.owner == "rival"}
    lost = alone - _owned(subject, after) - taken
    groups = [set(p.nodes) for p in after.partitions if p.plugin == subject.name]
    assert not lost or groups or not alone, f"it lost {sorted(lost)}, which nobody took"


def _owned(subject: Subject, plan: MethodPlan) -> set[str]:
    return {entry.node for entry in plan.ledger if entry.owner == subject.name}


@contract(
    "it leaves delegates that a program comes with alone, and doesn't fail on them",
    "programs may be lowered in part before etdev sees them",
)
def foreign_delegates(subject: Subject) -> None:
    program = programs.delegated()
    with on(program):
        plan = subject.lowerer().plan(program)["forward"]
    said = [entry for entry in plan.ledger if entry.foreign]
    wrong = [v for e in said for v in e.verdicts if v.code == "foreign"]
    assert not wrong, "it claims the call of a delegate"


@contract(
    "it says of every node that it doesn't claim why",
    "the reasons are all that its users see of it when a model is slow",
)
def reasons(subject: Subject) -> None:
    if not subject.requirements.reasons:
        raise Skipped("requirements.reasons is off")
    for kind in (Pointwise, Layer, Shared):
        with on(exported(kind)):
            ledger = subject.lowerer().plan(exported(kind))["forward"].ledger
            silent = [e.node for e in ledger for v in e.verdicts if v.code == "silent"]
            assert not silent, f"it says nothing of {', '.join(silent)}"


@contract(
    "what it remembers of one method is not used for another",
    "programs have several methods, such as a prefill and a decode step",
)
def methods(subject: Subject) -> None:
    both = programs.methods()
    plan = subject.lowerer().plan(both)
    for name, one in both.items():
        alone = subject.lowerer().plan({name: one})[name]
        kind: Any = type(one[0])
        with on(exported(kind)):
            own = [(p.nodes, p.constants, p.device) for p in plan[name].partitions]
            apart = [(p.nodes, p.constants, p.device) for p in alone.partitions]
            assert own == apart, f"method {name!r} gets another plan beside the other one"


@contract(
    "its partitions are on devices that its claims name, and its payloads say the same",
    "a label that is not true lets a .pte load on a machine that it does not run on",
)
def devices(subject: Subject) -> None:
    lowerer = subject.lowerer()
    plan = lowerer.plan(exported(Layer))
    if not plan.partitions:
        raise Skipped("it claims nothing of the program")
    subject.compiling()
    from executorch.exir.lowered_backend_module import get_lowered_submodules

    with on(exported(Layer)):
        program = lowerer.lower(exported(Layer)).edge.exported_program()
    owners = {partition.backend_id: partition for partition in plan.partitions}
    for _, module, _ in get_lowered_submodules(program.graph_module):
        payload, own = bytes(module.processed_bytes), owners[module.backend_id].device
        device = answers.payload_device(lowerer.plugins, module.backend_id, payload)
        if device is not None:
            assert isinstance(device, Device)
            assert device == own, f"planned on {own}, the payload is for {device}"


@contract(
    "a failed compile fails, and the process is as before",
    "a delegate with another's bytes computes something else, in silence",
)
def failures(subject: Subject) -> None:
    (plugin,) = subject.lowerer().plugins
    own = [p.device for p in subject.lowerer().plan(exported(Layer)).partitions]
    if own and subject.requirements.compiles and not answers.probe(plugin).unfit:
        with on(exported(Layer)):
            _fails(plugin, own[0])
        return
    raise Skipped("it can't compile here")


def _fails(plugin: Any, device: Device) -> None:
    told = RuntimeError("the compiler failed")
    try:
        with answers.compile_context(plugin, device):
            raise told
    except Exception as error:
        if error is not told:
            what = error.what if isinstance(error, PluginError) else f"it raised {error!r} instead"
            raise AssertionError(what) from error


def _values(subject: Subject, kind: Any, *calls: Any, dynamic: bool = False) -> None:
    lowerer = subject.lowerer()
    program = exported(kind, dynamic)
    with on(program):
        if not lowerer.plan(program).partitions:
            return
        subject.compiling()
        lowered = lowerer.lower(program)
        if not can_run(lowered):
            raise Skipped("this runtime does not have its backend")
        model = copy.deepcopy(kind().eval())
        assert_eager(lowered, model, calls, subject.requirements.tolerance)


X, Y = programs.X, programs.Y


@contract("its delegates compute what PyTorch does", "a fast wrong number is of no use")
def values(subject: Subject) -> None:
    _values(subject, Pointwise, (X, Y), (Y, X))
    _values(subject, Layer, (X,), (Y,))


@contract(
    "what is left outside of it, or shared, has the right values",
    "a weight that two delegates or a kernel read is stored once, or twice the same",
)
def shared_constants(subject: Subject) -> None:
    _values(subject, Shared, (X,), (Y,))


@contract(
    "state that the method writes is right at every step",
    "a cache that a delegate froze gives the first token for ever",
)
def state(subject: Subject) -> None:
    _values(subject, Counter, (X,), (Y,), (X,))


@contract("control flow takes the right branch", "a delegate can't hold a branch")
def control_flow(subject: Subject) -> None:
    _values(subject, Branch, (X.abs(),), (-X.abs(),))


@contract(
    "dynamic sizes come out in their own size, at the bounds too",
    "backends that plan for the largest size return the largest",
)
def dynamic_shapes(subject: Subject) -> None:
    for kind in (Layer, Pointwise):
        calls = [(torch.rand(n, 4),) * (2 if kind is Pointwise else 1) for n in (1, 3, 8)]
        _values(subject, kind, *calls, dynamic=True)


@contract(
    "other dtypes, NaN and infinities are computed as PyTorch does, or left to others",
    "a claim that is too wide is a wrong number later",
)
def dtypes(subject: Subject) -> None:
    for name in subject.requirements.dtypes:
        dtype = getattr(torch, name)
        inputs = (X.to(dtype), Y.to(dtype))
        program = torch.export.export(Pointwise(), inputs)
        calls = [inputs]
        if subject.requirements.special and dtype.is_floating_point:
            odd = torch.tensor([[float("nan"), float("inf"), -float("inf"), 0.0]] * 2, dtype=dtype)
            calls += [(odd, inputs[1]), (inputs[0], odd)]
        with on(program):
            lowerer = subject.lowerer()
            if not lowerer.plan(program).partitions:
                continue
            subject.compiling()
            lowered = lowerer.lower(program)
            if not can_run(lowered):
                raise Skipped("this runtime does not have its backend")
            loose = 5e-3 if dtype == torch.float16 else 0.0
            tolerance = max(subject.requirements.tolerance, loose)
            assert_eager(lowered, Pointwise(), calls, tolerance)
