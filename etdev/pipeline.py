"""The pipeline: the stages from a model to a verified .pte, in their order.

Rows of the quirks table look at the programs of a stage before it runs, and those of `validate`
after ExecuTorch's verifier, which refuses what their fixes add. `Lowerer.plan` runs the stages up
to `plan`, `Lowerer.lower` those up to `compile`, and `Lowered` the rest each time that it is
emitted. `etdev.partitioner()` runs those from `prepare` to `simplify`, plans, and hands ATen back
to ExecuTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import closing, nullcontext
from typing import Any, Generic, TypeVar

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram

from etdev.delegate.compile import Compiler
from etdev.edge.conversion import Conversion, take_marks
from etdev.edge.shared_state import references_of, shared_states
from etdev.edge.source import export, refuse_without_values
from etdev.errors import EtdevError
from etdev.graph.tracebacks import current_place
from etdev.lowering.compilation import Compilation, CompileProgress, bar
from etdev.lowering.composition import guarded
from etdev.lowering.emission import Emission
from etdev.lowering.lowering import Lowering
from etdev.lowering.storage import contents, growths, refuse_too_large, stored_again
from etdev.pte.embedded_plan import embed, embed_state
from etdev.pte.emit import add_etrecord
from etdev.pte.emit import emit as emit_program
from etdev.pte.read import read
from etdev.pte.shared_arena import warn_of_devices
from etdev.schema import stages as named
from etdev.schema.method import Method
from etdev.schema.stages import Stage
from etdev.upstream.shape_env import noting_fixed
from etdev.upstream.shortcuts.collector import without_full_collections
from etdev.verify.verifying import Verifying

W = TypeVar("W", Lowering, Emission, Verifying)


@frozen(eq=False)
class Step(Generic[W]):
    """A stage of the pipeline and its function, which changes the work that it is given.

    Args:
        stage: Its name, and the kind of program that it is given.
        run: The function.
        by_executorch: Errors of ExecuTorch name the stage.
    """

    stage: Stage[Any]
    run: Callable[[W], None]
    by_executorch: bool = False


def run(steps: Iterable[Step[W]], work: W) -> None:
    """Run stages one after the other; each is timed, and its errors name it."""
    for step in steps:
        name = step.stage.name
        guard = guarded(name) if step.by_executorch else nullcontext()
        with work.stages.stage(name), noting_fixed(current_place), guard:
            step.run(work)


def each(
    stage: Stage[ExportedProgram],
    convert: Callable[[Conversion, ExportedProgram, str], ExportedProgram],
) -> Step[Lowering]:
    """Return a stage of the conversion that takes one program after the other."""

    def convert_each(work: Lowering) -> None:
        for method, program in work.programs.items():
            # A program that came in the edge dialect is as its author wants it.
            if work.sources[method].dialect != "EDGE":
                fixed = work.fixer.apply(stage, program, method)
                work.programs[method] = convert(work.conversion, fixed, method)

    return Step(stage, convert_each, by_executorch=True)


def export_methods(work: Lowering) -> None:
    """Export the methods to ATen, and remember them in eager PyTorch."""
    fixed = {name: work.fixer.apply(named.EXPORT, m, name) for name, m in work.methods.items()}
    work.methods = fixed
    programs = {name: export(method, work.fixer) for name, method in fixed.items()}
    shared = work.composition.options.share_state
    work.state = [evolve(state, shared=shared) for state in shared_states(programs)]
    work.references = references_of(work.methods, programs, work.state, work.fixer.doubts)
    for name, program in programs.items() if work.compiles else ():
        refuse_without_values(name, program)
    work.programs = programs


def link(work: Lowering) -> None:
    """Let methods that share state declare it."""
    work.sources = work.fixer.apply(named.LINK, work.programs, "")
    work.programs = dict(work.sources)
    work.conversion.check_names(work.programs)


def transform(work: Lowering) -> None:
    """Refuse ops that ExecuTorch doesn't take, and run the user's passes."""
    work.programs = work.conversion.transform(work.programs)


def validate(work: Lowering) -> None:
    """Let ExecuTorch verify the programs; its verifier doesn't take what the rows' fixes add."""
    work.conversion.validate(work.programs)
    work.programs = {
        method: work.fixer.apply(named.VALIDATE, program, method, work.sources[method])
        for method, program in work.programs.items()
    }


@without_full_collections()
def plan(work: Lowering) -> None:
    """Ask the plugins, and decide who runs what and where."""
    if not work.converted:
        approximated = work.conversion.approximated
        methods = {name: Method(name, program) for name, program in approximated.items()}
        again = references_of(methods, approximated, work.state, work.fixer.doubts)
        work.references = {**work.references, **again}
        work.converted = {
            method: work.fixer.apply(named.PLAN, program, method)
            for method, program in work.programs.items()
        }
        work.whole = {name: take_marks(program) for name, program in work.converted.items()}
    refuse_too_large(work.converted, work.composition.options.target)
    expander, composition = work.conversion.expander, work.composition
    made, work.programs = composition.plan(
        work.converted, work.whole, expander, work.barred, work.state
    )
    work.composition = composition.fit_target(made)
    if work.composition is not composition:
        # What was left out may have been the only one to keep a node from another plugin.
        plan(work)
        return
    work.plan = made.with_fixes(work.fixer.fixes)
    composition.check_here(work.plan)
    warn_of_devices(work.plan, composition.options.strict)


@without_full_collections()
def split(work: Lowering) -> None:
    """Make a program for each partition."""
    work.programs = {
        method: work.fixer.apply(named.SPLIT, program, method)
        for method, program in work.programs.items()
    }
    work.splits = {
        method: work.composition.split(program, work.plan[method])
        for method, program in work.programs.items()
    }


def compile_partitions(work: Lowering) -> None:
    """Compile each partition, or take it from the cache."""
    work.modules = work.compiler.compile(work.splits)


@without_full_collections()
def join(work: Emission) -> None:
    """Put methods together again, with a delegate call in place of each partition."""
    done = work.lowering
    joined = {name: own.join(done.modules[name]) for name, own in done.splits.items()}
    work.programs = {
        method: work.fixer.apply(named.EMIT, named.OwnProgram(program), method)
        for method, program in joined.items()
    }


def emit(work: Emission) -> None:
    """Plan memory and emit the program, with ExecuTorch's own passes."""
    done, plan = work.lowering, work.plan
    manager = done.manager(work.programs)
    embed_state(manager, plan.state)
    if work.with_ledger:
        embed(manager, plan)
    if work.with_record:
        exported = {name: known.program for name, known in done.references.items()}
        add_etrecord(manager, exported, done.manager(done.programs))
    work.emitted = emit_program(manager, plan, work.config, work.fixer)


def write(work: Emission) -> None:
    """Write a .pte, and .ptd files beside it."""
    work.emitted.write(work.path)


def audit(work: Emission) -> None:
    """Read the .pte back and compare it with the plan."""
    work.emitted.audit(work.lowering.plan, read(work.path).methods, work.who)


def verify(work: Verifying) -> None:
    """Run the .pte, call by call, and compare it with eager PyTorch."""
    work.verification = work.verifier.verify(work.inputs)


EXPORTING = (Step(named.EXPORT, export_methods),)
CONVERTING = (
    Step(named.LINK, link, by_executorch=True),
    each(named.PREPARE, Conversion.prepare),
    each(named.FUNCTIONALISE, Conversion.functionalise),
    each(named.DECOMPOSE, Conversion.decompose),
    each(named.FINISH, Conversion.finish),
    each(named.TO_EDGE, Conversion.to_edge),
    Step(named.TRANSFORM, transform, by_executorch=True),
    Step(named.VALIDATE, validate, by_executorch=True),
    each(named.SIMPLIFY, Conversion.simplify),
)
PLANNING = (Step(named.PLAN, plan),)
COMPILING = (Step(named.SPLIT, split), Step(named.COMPILE, compile_partitions))
EMITTING = (
    Step(named.JOIN, join, by_executorch=True),
    Step(named.EMIT, emit, by_executorch=True),
)
WRITING = (Step(named.WRITE, write), Step(named.AUDIT, audit))
VERIFYING = (Step(named.VERIFY, verify),)
PIPELINE = (*EXPORTING, *CONVERTING, *PLANNING, *COMPILING, *EMITTING, *WRITING, *VERIFYING)


def convert(work: Lowering) -> None:
    """Run the stages from the exported programs to simplified ones in the edge dialect."""
    # torch can't trace some programs while gradients are on, such as a scan of integers.
    with torch.no_grad():
        run(CONVERTING, work)


def decide(work: Lowering) -> None:
    """Run the stages up to the plan."""
    run(EXPORTING, work)
    convert(work)
    run(PLANNING, work)


def plan_and_compile(work: Lowering, planning: Sequence[Step[Lowering]] = PLANNING) -> None:
    """Run the stages from the plan to compiled partitions, and again where a compiler failed."""
    run(planning, work)
    run(COMPILING, work)
    while failures := work.compiler.failures:
        bar(failures, work.barred)
        try:
            run(planning, work)
        except EtdevError as error:
            # Such as a budget for portable kernels: the reason is what could not be compiled.
            raise error from failures[0][1]
        run(COMPILING, work)


def lower(work: Lowering, compilation: Compilation) -> None:
    """Run the stages up to compiled partitions.

    A lowering that is converted already is planned and compiled only. Workers begin meanwhile.
    """
    memory, dispatcher = compilation.workers()
    with closing(dispatcher) if dispatcher else nullcontext():
        if not work.converted:
            run(EXPORTING, work)
            convert(work)
        tell, tolerant = CompileProgress(work), work.composition.options.falls_back
        work.compiler = Compiler(work.composition.plugins, memory, tell, dispatcher, tolerant)
        plan_and_compile(work)
    plans, modules, again = work.plan.methods, work.compiler.modules, work.plan.stored_again
    # Without a weight in two places, none shares bytes with a delegate's named data.
    known = contents(modules) if again else frozenset[bytes]()
    grown = tuple(growths(plans, work.programs, modules, known))
    again = tuple(stored_again(plans, work.programs, known)) if again else again
    work.plan = evolve(work.plan, growths=grown, stored_again=again)
