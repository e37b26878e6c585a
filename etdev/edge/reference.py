"""The methods of a model in eager PyTorch, as they were when they were exported."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import cached_property

import numpy as np
import torch
from attrs import frozen
from torch.export import ExportedProgram

from etdev.errors import SourceError
from etdev.graph.nodes import calls_in
from etdev.graph.ops import written_by
from etdev.graph.signature import stored_values
from etdev.schema.method import Method
from etdev.upstream.trees import pytree


@frozen(eq=False)
class Reference:
    """The eager method that a method of a .pte is compared with, and its exported program."""

    method: Method
    program: ExportedProgram
    # The values that its mutated buffers and parameters had, by name. Copies, since eager calls of
    # the caller's module change them.
    state: Mapping[str, torch.Tensor]
    # Why later calls of the program may not give the method's values; empty if nothing is known.
    doubt: str = ""

    @classmethod
    def of(cls, method: Method, program: ExportedProgram, shared: Iterable[str] = ()) -> Reference:
        """Remember the state of a method that was just exported; it shares some with others."""
        values = stored_values(program)
        names = [name for name in (*written(program), *shared) if name in values]
        return cls(method, program, {name: values[name].detach().clone() for name in names})

    @cached_property
    def scans(self) -> bool:
        """True if the method calls torch's scan."""
        calls = calls_in(self.program.graph_module)
        return any(node.target is torch.ops.higher_order.scan for node in calls)

    def example(self) -> tuple[list[object], pytree.TreeSpec]:
        """Return the example inputs in the order of the program's inputs, and their structure."""
        leaves, spec = pytree.tree_flatten(self.program.example_inputs or self.method.example())
        return leaves, spec

    def given(self, inputs: object) -> list[list[object]]:
        """Return the leaves of a tuple of arguments, a list of such tuples, or None."""
        calls = inputs if isinstance(inputs, list) else [inputs]
        return [self._leaves(call) for call in calls if call is not None]

    def _leaves(self, arguments: object) -> list[object]:
        own: tuple[object, ...] = (arguments,)
        if isinstance(arguments, Iterable) and not isinstance(arguments, torch.Tensor):
            own = tuple(arguments)
        _, keywords = self.program.example_inputs or self.method.example()
        leaves, structure = pytree.tree_flatten((own, dict(keywords)))
        if structure != self.example()[1]:
            what = "the inputs are not those it takes"
            raise SourceError(self.method.name, what, "give them as the example inputs are")
        return leaves

    def broken_assumption(self, leaves: Sequence[object]) -> str:
        """Return what torch.export assumed of sizes and some inputs break; empty if none do."""
        (module,) = duplicates([self.program.module(check_guards=True)], [self.state])
        try:
            called(module, leaves, self.example()[1], self.scans)
        except Exception as error:
            if isinstance(error, AssertionError):
                return str(error).partition("Guard failed: ")[2]
        return ""

    def restore(self, module: torch.nn.Module) -> None:
        """Give a copy of the module the state that the method started with."""
        tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
        with torch.no_grad():
            for name, value in self.state.items():
                if name in tensors:
                    tensors[name].copy_(value)


def written(program: ExportedProgram) -> Iterator[str]:
    """Yield the names of the buffers and parameters that a program writes to."""
    signature = program.graph_signature
    yield from (spec.target for spec in signature.output_specs if spec.target)
    constants = {spec.arg.name: spec.target for spec in signature.input_specs if spec.target}
    for node in program.graph.nodes:
        for argument in written_by(node):
            # An op may return its input, whatever its schema says.
            while argument.op == "call_function" and argument.all_input_nodes:
                argument = argument.all_input_nodes[0]
            yield constants.get(argument.name, "")


def modules_of(references: Sequence[Reference]) -> list[torch.nn.Module]:
    """Copy the modules of methods, with their state as it was, and what they share of it."""
    states = [reference.state for reference in references]
    models = [reference.method.model for reference in references]
    given = [model for model in models if not isinstance(model, ExportedProgram)]
    modules: list[torch.nn.Module] = []
    # Some modules can't be copied, such as those that hold locks or generators.
    with suppress(Exception):
        modules = duplicates(given, states) if len(given) == len(models) else []
    modules = modules or duplicates([known.program.module() for known in references], states)
    for reference, module in zip(references, modules, strict=True):
        reference.restore(module)
    return modules


def duplicates(
    modules: Sequence[torch.nn.Module], states: Sequence[Mapping[str, object]]
) -> list[torch.nn.Module]:
    """Copy modules whose calls may change their states, without weights that no call writes."""
    named = [dict(module.named_parameters(remove_duplicate=False)) for module in modules]
    written = {
        id(own[name])
        for own, state in zip(named, states, strict=True)
        for name in own.keys() & state.keys()
    }
    kept = {id(p): p for own in named for p in own.values() if id(p) not in written}
    return copy.deepcopy(list(modules), kept)


def called(
    module: Callable[..., object],
    leaves: Sequence[object],
    structure: pytree.TreeSpec,
    scans: bool = False,
) -> tuple[list[object], list[object]]:
    """Return the outputs of a module in PyTorch, and copies of its inputs after the call.

    Both are flat and without None, which a .pte has neither as input nor as output.

    Args:
        module: A module, or a function.
        leaves: Its inputs.
        structure: Their structure.
        scans: It calls torch's scan.
    """
    own = _copies(leaves)
    arguments, keywords = pytree.tree_unflatten(own, structure)
    # torch compiles control flow, which takes seconds, unless it is told not to. Only a scan is
    # compiled: uncompiled, torch fails to separate what it carries from what it returns.
    stance = "default" if scans else "force_eager"
    with torch.no_grad(), torch.compiler.set_stance(stance):
        outputs = _copies(pytree.tree_leaves(module(*arguments, **keywords)))
    return [v for v in outputs if v is not None], [v for v in own if v is not None]


def _copies(values: Sequence[object]) -> list[object]:
    return [v.detach().clone() if isinstance(v, torch.Tensor) else v for v in values]


@contextmanager
def untouched_random_state() -> Iterator[None]:
    """Restore the random generators of Python, NumPy and torch afterwards."""
    python, numpy = random.getstate(), np.random.get_state()
    with torch_random_state():
        try:
            yield
        finally:
            random.setstate(python)
            np.random.set_state(numpy)


def torch_random_state() -> AbstractContextManager[None]:
    """Restore the random generators of torch afterwards, on all devices in use."""
    used: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    devices = range(torch.cuda.device_count()) if used else ()
    return torch.random.fork_rng(devices)
