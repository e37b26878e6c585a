"""The table at work: a stage looks once for all of its rows, and again after a fix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Any

from attrs import define, field, frozen
from torch.fx import GraphModule, Node

from etdev.errors import EtdevError, LoweringError, PluginError, first_line, warn_or_raise
from etdev.graph.nodes import graph_modules, op_name, ops_with_lines, where
from etdev.quirks import QUIRKS
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.quirk import Nodes, Quirk, Refusal, Since, Stage
from etdev.schema.releases import warn_of_untried
from etdev.upstream.operators import overload_of

_Calls = dict[Any, list[tuple[int, Node]]]
_HOST = "etdev"
CONVERSION, EMISSION, LOOP = "edge conversion", "to_executorch", "partitioner"


def rows_of(plugins: Iterable[Plugin]) -> list[tuple[str, Quirk]]:
    """Return who has which row, also those for other versions: etdev's, then plugins' in order.

    Raises:
        PluginError: A plugin gives a row the name of another one.
    """
    rows = [(_HOST, row) for row in QUIRKS]
    owners = {row.name: _HOST for row in QUIRKS}
    for plugin in plugins:
        for row in answers.quirks(plugin):
            if row.name in owners:
                what = f"has a quirk {row.name!r}, as {owners[row.name]} has"
                raise PluginError(plugin.name, what, "give it another name")
            owners[row.name] = plugin.name
            rows.append((plugin.name, row))
    return rows


def _present(rows: Iterable[Quirk]) -> tuple[Quirk, ...]:
    return tuple(row for row in rows if row.is_present)


@define(eq=False)
class Table:
    """The rows for the faults of the installed versions, in their order.

    It warns once in a process of versions that nobody has tried.

    Args:
        rows: The rows; those whose fault began later or is fixed are left out.
    """

    rows: Sequence[Quirk] = field(converter=_present)

    def __attrs_post_init__(self) -> None:
        warn_of_untried()

    def at(self, stage: Stage) -> list[Quirk]:
        """Return the rows of one stage."""
        return [row for row in self.rows if stage in row.stages]

    def apply(self, stage: Stage, program: Any, method: str, source: Any = None) -> Any:
        """Fix or refuse what the rows of a stage find; return the program without the faults.

        It is an ExportedProgram, at `METHODS` a dict of them, at `EMIT` a GraphModule; `source` is
        the program that it was converted from, if that is another. Errors name `method`.

        Raises:
            EtdevError: The error of a row that has no fix for what it found.
        """
        index = Index(program, source)
        for row in self.at(stage):
            found = index.found(row.find) if row.fix or row.refusal else []
            if not found:
                continue
            if row.fix is None:
                _refuse(row.refusal, method, found, _who(stage))
                continue
            try:
                program = row.fix(program, found)
            except (RuntimeError, ValueError) as error:
                if row.refusal is None:
                    raise
                raise _error_of(row.refusal, method, found, _who(stage), error) from error
            index = Index(program, source)
        return program

    def refuse(self, stages: Collection[Stage], program: Any, method: str) -> None:
        """Refuse what ExecuTorch's own loop would get wrong and `etdev.partitioner()` can't fix.

        These are the rows that are looked for first at one of `stages`.

        Raises:
            EtdevError: The error of the first row that has found something.
        """
        index = Index(program)
        for row in self.rows:
            refusal = row.in_loop or (None if row.fix else row.refusal)
            # The loop has no stage between those that it is looked at.
            places = row.stages if row.in_loop else row.stages[:1]
            if refusal is None or not set(places).intersection(stages):
                continue
            if found := index.found(refusal.find or row.find):
                _refuse(refusal, method, found, LOOP if row.in_loop else _who(row.stages[0]))

    @contextmanager
    def during(self, stage: Stage, program: Any) -> Iterator[list[Callable[[Any], None]]]:
        """Enter the contexts in which upstream's part of a stage has to run.

        Yields:
            Functions that check the result, once the contexts are left.
        """
        index, checks = Index(program), []
        with ExitStack() as stack:
            for row in self.at(stage):
                if row.during and (found := index.found(row.find)):
                    checks.append(stack.enter_context(row.during(found)))
            yield [check for check in checks if check]


@frozen(eq=False, slots=False)
class Index:
    """An index of an ExportedProgram or a GraphModule, by which rows find nodes in one walk."""

    program: Any
    source: Any = None

    def found(self, find: Any) -> list[Any]:
        """Return what `Quirk.find` finds."""
        if isinstance(find, Since):
            return list(find.find(self.program, self.source or self.program))
        if not isinstance(find, Nodes):
            return list(find(self.program))
        calls = self._everywhere if find.branches else self._here
        places = [place for op in find.ops or calls for place in calls.get(op, ())]
        nodes = [node for _, node in sorted(places, key=itemgetter(0))]
        return [node for node in nodes if find.only is None or find.only(node)]

    @cached_property
    def _here(self) -> _Calls:
        return _calls([self._root])

    @cached_property
    def _everywhere(self) -> _Calls:
        return _calls(graph_modules(self._root))

    @property
    def _root(self) -> GraphModule:
        root: GraphModule = getattr(self.program, "graph_module", self.program)
        return root


def _calls(modules: Iterable[GraphModule]) -> _Calls:
    """Return the nodes of some graphs, with their place, by the op that they call, if any."""
    calls: _Calls = {}
    for place, node in enumerate(node for module in modules for node in module.graph.nodes):
        op = (overload_of(node.target) or node.target) if node.op == "call_function" else None
        calls.setdefault(op, []).append((place, node))
    return calls


def _refuse(refusal: Refusal | None, method: str, found: Sequence[Any], who: str) -> None:
    """Raise the error for what a row has found, or warn of each."""
    if not (refusal and refusal.warns):
        raise _error_of(refusal, method, found, who)
    for each in found:
        warn_or_raise(_error_of(refusal, method, [each], who), False)


def _error_of(
    refusal: Refusal | None,
    method: str,
    found: Sequence[Any],
    who: str,
    error: Exception | None = None,
) -> EtdevError:
    """Make the error for what a row has found; `error` is why a fix failed."""
    assert refusal is not None
    names = ", ".join(str(getattr(each, "name", each)) for each in found)
    values = {"method": method, "found": found[0], "names": names, "error": error}
    if error is not None:
        values["why"] = first_line(error)
    nodes = [getattr(each, "node", each) for each in found]
    nodes = [node for node in nodes if isinstance(node, Node)]
    if nodes:
        values.update(op=op_name(nodes[0]), where=where(nodes[0]), ops=ops_with_lines(nodes))
    # Of what is given to etdev, the method is at fault, and no stage.
    named = who if issubclass(refusal.error, LoweringError) else method
    return refusal.error(named, refusal.what.format(**values), refusal.cure.format(**values))


def _who(stage: Stage) -> str:
    if stage is Stage.METHODS:
        return "several methods"
    return EMISSION if stage in (Stage.PLANNED, Stage.EMIT) else CONVERSION
