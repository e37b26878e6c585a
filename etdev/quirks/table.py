"""The table at work: a stage looks once for all of its rows, and again after a fix."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import cached_property
from operator import itemgetter
from typing import Generic, cast

from attrs import define, field, frozen
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev.errors import EtdevError, LoweringError, PluginError, first_line, warn_or_raise
from etdev.graph.nodes import graph_modules, line_of, op_name, ops_with_lines, where
from etdev.quirks import QUIRKS
from etdev.registry import answers
from etdev.registry.plugin import Plugin
from etdev.schema.fix import Fix
from etdev.schema.method import Method
from etdev.schema.quirk import Check, In, Nodes, Op, Rejection, Row, SourceDifference, T
from etdev.schema.releases import warn_of_untried
from etdev.schema.stages import EXPORT, Stage
from etdev.upstream.operators import overload_of

_Calls = dict[Op, list[tuple[int, Node]]]
_HOST, PARTITIONER = "etdev", "partitioner"


def rows_of(plugins: Iterable[Plugin]) -> list[tuple[str, Row]]:
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


def _present(rows: Iterable[Row]) -> tuple[Row, ...]:
    return tuple(row for row in rows if row.is_present)


@define(eq=False)
class Table:
    """The rows for the faults of the installed versions, in their order.

    It warns once in a process of versions that nobody has tried.

    Args:
        rows: The rows; those whose fault began later or is fixed are left out.
    """

    rows: Sequence[Row] = field(converter=_present)

    def __attrs_post_init__(self) -> None:
        warn_of_untried()

    def at(self, stage: Stage[object]) -> list[Row]:
        """Return the rows of one stage."""
        return [row for row in self.rows if stage in row.stages]

    def refuse(self, stages: Collection[Stage[In]], program: In, method: str) -> None:
        """Refuse what ExecuTorch's own loop would get wrong and `etdev.partitioner()` can't fix.

        These are the rows that are looked for first at one of `stages`.

        Raises:
            EtdevError: The error of the first row that has found something.
        """
        index = Index(program)
        for row in self.rows:
            rejection = row.in_loop or (None if row.fix else row.refusal)
            # `etdev.partitioner()` sees only some stages, so a row counts at its first one.
            places = row.stages if row.in_loop else row.stages[:1]
            if rejection is None or not set(places).intersection(stages):
                continue
            if found := index.found(rejection.find or row.find):
                who = PARTITIONER if row.in_loop else row.stages[0].name
                _reject(rejection, method, found, who)


@define(eq=False)
class Fixer:
    """The rows of a table at work in one lowering.

    Args:
        table: The rows.
        fixes: What the rows changed so far, by method.
        doubts: Why later calls of a method may not give the model's values, by method.
    """

    table: Table
    fixes: dict[str, list[Fix]] = field(factory=dict)
    doubts: dict[str, str] = field(factory=dict)

    def apply(
        self, stage: Stage[In], program: In, method: str, source: ExportedProgram | None = None
    ) -> In:
        """Fix or refuse what the rows of a stage find; return the program without the faults.

        `source` is the program that it was converted from, if that is another. Errors name
        `method`.

        Raises:
            EtdevError: The error of a row that has no fix for what it found.
        """
        index = Index(program, source)
        for row in self.table.at(stage):
            found = index.found(row.find) if row.fix or row.refusal else []
            if not found:
                continue
            if row.fix is None:
                _reject(row.refusal, method, found, stage.name)
                continue
            fix = Fix(row.name, stage.name, tuple(map(_short, found)), _line(found))
            try:
                program = row.fix(program, found)
            except (RuntimeError, ValueError) as error:
                if row.refusal is None:
                    raise
                raise _error_of(row.refusal, method, found, stage.name, error) from error
            self.fixes.setdefault(method, []).append(fix)
            index = Index(program, source)
        return program

    @contextmanager
    def during(self, method: Method) -> Iterator[list[Check]]:
        """Enter the contexts in which torch.export has to run.

        Yields:
            Functions that check the result, once the contexts are left.
        """
        index, checks = Index(method), []
        with ExitStack() as stack:
            for row in self.table.at(EXPORT):
                if row.during and (found := index.found(row.find)):
                    checks.append(stack.enter_context(row.during(found)))
            yield [check for check in checks if check]


@frozen(eq=False, slots=False)
class Index(Generic[In]):
    """An index of an ExportedProgram or a GraphModule, by which rows find nodes in one walk."""

    program: In
    source: ExportedProgram | None = None

    def found(self, find: Callable[[In], Iterable[T]]) -> list[T]:
        """Return what `Quirk.find` finds."""
        if isinstance(find, SourceDifference):
            # Rows of programs have it.
            program = cast(ExportedProgram, self.program)
            return list(find.find(program, self.source or program))
        if isinstance(find, Nodes):
            return cast(list[T], self._nodes(find))
        return list(find(self.program))

    def _nodes(self, find: Nodes) -> list[Node]:
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
        root: GraphModule = getattr(self.program, "graph_module", self.program)  # type: ignore[arg-type]
        return root


def _calls(modules: Iterable[GraphModule]) -> _Calls:
    """Return the nodes of some graphs, with their place, by the op that they call, if any."""
    calls: _Calls = {}
    for place, node in enumerate(node for module in modules for node in module.graph.nodes):
        op = (overload_of(node.target) or node.target) if node.op == "call_function" else None
        calls.setdefault(op, []).append((place, node))
    return calls


def _reject(
    rejection: Rejection[In] | None, method: str, found: Sequence[object], who: str
) -> None:
    """Raise the error for what a row has found, or warn of each."""
    if not (rejection and rejection.warns):
        raise _error_of(rejection, method, found, who)
    for each in found:
        warn_or_raise(_error_of(rejection, method, [each], who), False)


def _error_of(
    rejection: Rejection[In] | None,
    method: str,
    found: Sequence[object],
    who: str,
    error: Exception | None = None,
) -> EtdevError:
    """Make the error for what a row has found; `error` is why a fix failed."""
    assert rejection is not None
    names = ", ".join(_names(found))
    values = {"method": method, "found": found[0], "names": names, "error": error}
    if error is not None:
        values["why"] = first_line(error)
    if nodes := _nodes(found):
        values.update(op=op_name(nodes[0]), where=where(nodes[0]), ops=ops_with_lines(nodes))
    # Of what is given to etdev, the method is at fault, and no stage.
    named = who if issubclass(rejection.error, LoweringError) else method
    return rejection.error(named, rejection.what.format(**values), rejection.cure.format(**values))


def _names(found: Sequence[object]) -> tuple[str, ...]:
    return tuple(str(getattr(each, "name", each)) for each in found)


def _short(found: object) -> str:
    """Return the name of a node, a buffer, an input or a symbol, for the plan."""
    one = found[0] if isinstance(found, tuple) else found
    return str(getattr(one, "name", None) or getattr(one, "target", None) or one)


def _nodes(found: Sequence[object]) -> list[Node]:
    """Return the nodes among what a row has found."""
    nodes = [getattr(each, "node", each) for each in found]
    return [node for node in nodes if isinstance(node, Node)]


def _line(found: Sequence[object]) -> str:
    """Return the line in the user's code of the first node that has one."""
    return next(filter(None, map(line_of, _nodes(found))), "")
