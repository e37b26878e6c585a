"""Methods of a model in eager PyTorch, with which applications compare programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from attrs import evolve, frozen
from torch.export import ExportedProgram

from etdev.edge.reference import Reference, written
from etdev.edge.source import export, methods_of
from etdev.quirks import QUIRKS
from etdev.quirks.table import Fixer, Table
from etdev.schema.method import Method
from etdev.upstream.trees import flat
from etdev.verify.inputs import DRAWS
from etdev.verify.oracle import EagerCall, Oracle, is_random
from etdev.verify.output_error import errors_of
from etdev.verify.session import session_of
from etdev.verify.tolerance import Tolerance
from etdev.verify.verifier import STEPS


# Not slotted: its cached members stay attributes of the class, with their docstrings.
@frozen(eq=False, slots=False)
class EagerMethod:
    """A method of a model in eager PyTorch, which is exported when that is first needed.

    Its calls begin with the state that it had then. A SourceError says why it can't be exported.

    Args:
        source: The method as a user gave it, which `Lowerer.lower` takes in a dict.

    Example:
        methods = EagerMethod.of_model(net, (example,))
        (call,) = methods["forward"].calls([[example]], 1)
        assert EagerMethod.error(call.outputs, call.outputs) == 0
    """

    source: Method

    @classmethod
    def of_model(
        cls,
        model: object,
        inputs: Any = None,
        kwargs: Mapping[str, Any] | None = None,
        dynamic_shapes: Any = None,
    ) -> dict[str, EagerMethod]:
        """Return the methods of a model by name.

        Args:
            model: As for `Lowerer.lower`, like the others.
            inputs: Example inputs.
            kwargs: Example inputs by keyword.
            dynamic_shapes: As `torch.export.export` takes them.

        Raises:
            SourceError: The arguments are not those of a model.
        """
        methods = methods_of(model, inputs, kwargs, dynamic_shapes)
        return {name: cls(method) for name, method in methods.items()}

    @classmethod
    def of_program(
        cls, model: torch.nn.Module, program: ExportedProgram, inputs: Any
    ) -> EagerMethod:
        """Return the method of a module that was exported already, with its example inputs."""
        method = cls(Method("forward", model, inputs))
        # As its property would keep it.
        vars(method)["_reference"] = Reference.of(method.source, program)
        return method

    @property
    def name(self) -> str:
        """Its name."""
        return self.source.name

    @property
    def program(self) -> ExportedProgram:
        """The exported program."""
        return self._reference.program

    @property
    def exported(self) -> Method:
        """The exported program with its example inputs, which `Lowerer.lower` takes in a dict."""
        return evolve(self.source, model=self.program, dynamic_shapes=None)

    @property
    def is_random(self) -> bool:
        """True if two calls differ that are equal but for the seed of random numbers."""
        return is_random(self._reference)

    def example(self) -> list[Any]:
        """Return the flat example inputs, with None where the method takes it."""
        return self._reference.example()[0]

    def flat(self, inputs: Any) -> list[Any]:
        """Return the arguments of a call, a tuple or one tensor, as flat inputs.

        Raises:
            SourceError: They are not structured as the example inputs are.
        """
        return self._reference.given(inputs)[0]

    def calls(self, given: Sequence[Sequence[Any]], count: int | None = None) -> list[EagerCall]:
        """Call it with flat inputs, and then with fresh ones, each in the state that the last left.

        Args:
            given: Inputs of the first calls. Those that eager PyTorch refuses are left out.
            count: Number of calls; those that are not given have inputs like the example's, at the
                bounds of dynamic sizes. None makes those of a verification, some of them at other
                sizes, or with values far from the example's.

        Raises:
            VerifyError: Eager PyTorch takes none of the inputs.
        """
        steps, draws = (STEPS, DRAWS) if count is None else (count, 0)
        steps = max(steps, len(given))
        return session_of(self._reference, given, steps, bool(draws), draws).calls

    @staticmethod
    def replay(calls: Sequence[tuple[EagerMethod, Sequence[Any], bool]]) -> list[EagerCall]:
        """Call methods, each time in the state that the last call left; errors come through.

        Args:
            calls: Method, flat inputs, and whether results may be off as far as rounding moves
                them.
        """
        oracle = Oracle([*dict.fromkeys(method._reference for method, *_ in calls)])
        made = (oracle.call(method._reference, list(inputs)) for method, inputs, _ in calls)
        return [evolve(call, drawn=drawn) for call, (*_, drawn) in zip(made, calls, strict=True)]

    @staticmethod
    def written(program: ExportedProgram) -> frozenset[str]:
        """Return the names of the buffers and parameters that a program writes to."""
        return frozenset(filter(None, written(program)))

    @cached_property
    def _reference(self) -> Reference:
        return Reference.of(self.source, export(self.source, Fixer(Table(QUIRKS))))

    @staticmethod
    def leaves(value: Any) -> list[Any]:
        """Return the tensors and numbers in nested inputs, without None."""
        return flat(value)

    @staticmethod
    def errors(output: torch.Tensor, wanted: torch.Tensor) -> torch.Tensor:
        """Return the absolute error of each number of an output; equal infinities have none."""
        return errors_of(output, wanted)

    @staticmethod
    def error(wanted: Sequence[Any], outputs: Sequence[Any]) -> float:
        """Return the largest error of outputs, relative to the largest finite value that is wanted.

        Integers and bools have to be equal, except for one step of int8 and uint8, since quantised
        models round. The error is infinite for an output that is missing, has another shape or
        dtype, or is NaN on one side alone.
        """
        own, right = ([v for v in values if v is not None] for values in (outputs, wanted))
        return max(map(_error, own, right), default=0.0) if len(own) == len(right) else math.inf


def _error(value: Any, wanted: Any) -> float:
    if isinstance(value, str) or isinstance(wanted, str):
        return 0.0 if value == wanted else math.inf
    expected = torch.as_tensor(wanted).detach()
    both = isinstance(value, torch.Tensor) and isinstance(wanted, torch.Tensor)
    if both and value.dtype != wanted.dtype:
        return math.inf
    if torch.as_tensor(value).shape != expected.shape:
        return math.inf
    # A whole largest value, or one step.
    allowed = Tolerance(relative=1.0, steps=1).allowed(expected)
    off = errors_of(torch.as_tensor(value), expected)
    if expected.is_floating_point() or expected.is_complex():
        return float((off / allowed).nan_to_num(math.inf).max()) if off.numel() else 0.0
    return 0.0 if bool((off <= allowed).all()) else math.inf
