"""Repros as scripts that stand alone: the source of a repro with all that it uses, and its run."""

from __future__ import annotations

import ast
import importlib
import inspect
import subprocess
import sys
from collections.abc import Iterator
from functools import cache

from attrs import define, field, frozen

from support import quirks
from support.quirks import Repro

# Arguments of a repro that say how it is judged, and not what it is.
_JUDGED = {
    *("backend", "exceptions", "expects", "fault", "gradients", "quantised", "ranges", "strict"),
    *("tolerance", "undefined"),
}
_OWN = "support."
_IMPORTS = (
    *("import copy", "import torch", "from executorch.exir import to_edge_transform_and_lower"),
    *("from executorch.runtime import Runtime", "from torch.utils import _pytree as pytree"),
)


def script(name: str) -> str:
    """Return a script of torch and ExecuTorch alone that fails as a repro does."""
    repro, source = quirks.load(name), _Source()
    function = name.replace("-", "_")
    source.add(quirks.REPROS[name].__module__, function)
    imports = {*_IMPORTS, *source.imports, *_imports(repro)}
    # As ruff sorts them.
    head = sorted(imports, key=lambda line: (line.startswith("from"), line))
    parts = ["\n".join(head), *source.statements, _case(repro), *_run(repro, function)]
    command = [sys.executable, "-m", "ruff", "format", "--isolated", "-"]
    text = "\n\n".join(parts)
    done = subprocess.run(command, input=text, capture_output=True, text=True, check=True)
    return done.stdout


def _imports(repro: Repro) -> Iterator[str]:
    if repro.backend == "xnnpack":
        partitioner = "executorch.backends.xnnpack.partition.xnnpack_partitioner"
        yield f"from {partitioner} import XnnpackPartitioner"
    if repro.quantised:
        yield "import executorch.kernels.quantized"


def _case(repro: Repro) -> str:
    """Return the function that stands for `Repro`."""
    inputs = "inputs if isinstance(inputs, tuple) else (inputs,)"
    each = f"(name, {inputs}) for name, inputs" if _is_several(repro) else f"{inputs} for inputs"
    first = "dict(reversed(calls))" if _is_several(repro) else "calls[0]"
    return f'''\
def case(model, calls, example=None, dynamic_shapes=None):
    """Return a model, the inputs of its calls, and what it is exported with."""
    calls = [{each} in calls]
    return model, calls, example or {first}, dynamic_shapes
'''


def _run(repro: Repro, function: str) -> Iterator[str]:
    """Yield the statements that export a repro, lower it, run it and compare the results."""
    if not repro.gradients:
        yield "torch.set_grad_enabled(False)"
    yield f"torch.manual_seed(0)\nmodel, calls, example, dynamic_shapes = {function}()"
    yield "# A call may change the state of the model.\neager = copy.deepcopy(model)"
    options = "dynamic_shapes=dynamic_shapes" + ", strict=True" * repro.strict
    parts = _SEVERAL if _is_several(repro) else _ONE
    yield f"program = {parts.export.format(options=options)}"
    partitioner = ", partitioner=[XnnpackPartitioner()]" if repro.backend == "xnnpack" else ""
    yield f"manager = to_edge_transform_and_lower(program{partitioner})"
    if repro.ranges:
        yield "sizes = manager.exported_program().range_constraints"
        yield 'assert sizes == program.range_constraints, f"{sizes} {program.range_constraints}"'
    yield _SAVE
    yield parts.run + _COMPARE.format(most=repro.tolerance)


@frozen
class _Parts:
    """The statements that differ between a model of one method and of several."""

    export: str
    run: str


_ONE = _Parts(
    "torch.export.export(model, example, {options})",
    """\
method = program.load_method("forward")
for inputs in calls:
    with torch.no_grad():
        expected = eager(*copy.deepcopy(inputs))
    actual = method.execute(copy.deepcopy(inputs))
""",
)
_SEVERAL = _Parts(
    "{{name: torch.export.export(model[name], example[name], {options}) for name in model}}",
    """\
methods = {name: program.load_method(name) for name in model}
for name, inputs in calls:
    with torch.no_grad():
        expected = eager[name](*copy.deepcopy(inputs))
    actual = methods[name].execute(copy.deepcopy(inputs))
""",
)
_SAVE = """\
with open("repro.pte", "wb") as file:
    file.write(manager.to_executorch().buffer)
program = Runtime.get().load_program("repro.pte")
"""
_COMPARE = """\
    expected = pytree.tree_leaves(expected)
    torch.testing.assert_close(
        list(actual), expected, rtol={most:g}, atol={most:g}, equal_nan=True
    )
"""


def _is_several(repro: Repro) -> bool:
    return len(repro.methods) > 1


@define
class _Source:
    """Statements of modules of tests, each behind those that it uses.

    Args:
        imports: Imports of other projects, one name each.
        statements: The source of the statements.
    """

    imports: set[str] = field(factory=set)
    statements: list[str] = field(factory=list)
    _seen: set[tuple[str, str]] = field(factory=set)

    def add(self, module: str, name: str) -> None:
        """Add the statement of a module that binds a name, if one does."""
        statement = _statements(module).get(name)
        if statement is None or (module, name) in self._seen or name == Repro.__name__:
            return
        self._seen.add((module, name))
        if isinstance(statement, ast.Import | ast.ImportFrom):
            self._import(statement, name)
            return
        plain = _Plain().visit(ast.parse(ast.unparse(statement)))
        for node in ast.walk(plain):
            if isinstance(node, ast.Name):
                self.add(module, node.id)
        text = ast.unparse(plain)
        if text not in self.statements:
            self.statements.append(text)

    def _import(self, statement: ast.Import | ast.ImportFrom, name: str) -> None:
        (alias,) = (each for each in statement.names if name in _names(each))
        if isinstance(statement, ast.Import):
            self.imports.add(ast.unparse(ast.Import([alias])))
        elif str(statement.module).startswith(_OWN):
            self.add(str(statement.module), alias.name)
        else:
            self.imports.add(ast.unparse(ast.ImportFrom(statement.module, [alias], 0)))


class _Plain(ast.NodeTransformer):
    """Leaves out annotations, the registration of a repro, and how it is judged."""

    def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST:
        node.decorator_list = [d for d in node.decorator_list if ast.unparse(d) != "repro"]
        # An op of torch.library has its schema from its annotations.
        if not any("torch.library" in ast.unparse(each) for each in node.decorator_list):
            node.returns = None
            for argument in ast.walk(node.args):
                if isinstance(argument, ast.arg):
                    argument.annotation = None
        self.generic_visit(node)
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:
        self.generic_visit(node)
        node.keywords = [each for each in node.keywords if each.arg not in _JUDGED]
        return node

    def visit_Name(self, node: ast.Name) -> ast.AST:
        return ast.Name("case", node.ctx) if node.id == Repro.__name__ else node


@cache
def _statements(module: str) -> dict[str, ast.stmt]:
    """Return the statements at the top of a module, by the names that they bind."""
    tree = ast.parse(inspect.getsource(importlib.import_module(module)))
    return {name: statement for statement in tree.body for name in _bound(statement)}


def _bound(statement: ast.stmt) -> Iterator[str]:
    if isinstance(statement, ast.FunctionDef | ast.ClassDef):
        yield statement.name
    elif isinstance(statement, ast.Import | ast.ImportFrom):
        for alias in statement.names:
            yield from _names(alias)
    elif isinstance(statement, ast.Assign):
        targets = (node for target in statement.targets for node in ast.walk(target))
        yield from (node.id for node in targets if isinstance(node, ast.Name))


def _names(alias: ast.alias) -> list[str]:
    return [alias.asname or alias.name.split(".")[0]]
