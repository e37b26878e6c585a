"""A judge of models in an order of plugins, which compares with eager PyTorch by itself.

It shares no code with etdev's own verification, so that neither hides a mistake of the other.
"""

from __future__ import annotations

import copy
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from attrs import define, field, frozen
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge_transform_and_lower
from support.processes import DiedError, FailedError, Process
from torch import nn
from torch.export import ExportedProgram
from torch.utils import _pytree as pytree

import etdev
from etdev import Lowerer
from etdev.errors import EtdevError

Calls = Sequence[tuple[Any, ...]]
# Relative to the largest value of an output; the coarsest dtype of a model counts.
TOLERANCES = {torch.float16: 1e-2, torch.bfloat16: 3e-2, torch.float64: 1e-7}
FLOAT32 = 1e-4
# Values that float32 arithmetic leaves where values of about 1 cancel.
LEAST = 1e-6
_NO_KERNEL = "error: 0x:14"


@frozen
class Verdict:
    """A model's fate in an order of plugins.

    Args:
        kind: `right`, `wrong`, `refused` by an EtdevError, `raw` for another error, `failed`,
            `crashed` or `hung` when run, `no kernel` in the runtime here, `nothing` if no call
            gave a value to compare, or `unstable` as in `in_double`. A model may be no subject:
            `not exported`, `random`, with `ties` whose order PyTorch leaves open, or
            `no reference` in eager PyTorch.
        text: The error, or the difference.
        error: The largest error of any output, relative to its largest value.
    """

    kind: str
    text: str = ""
    error: float = 0.0

    def __str__(self) -> str:
        text = " ".join(self.text.split())[:100]
        return f"{self.kind}: {text}" if text and self.kind != "right" else self.kind


@frozen(eq=False)
class Subject:
    """A model to be judged.

    Args:
        model: The module, or a program that was exported.
        calls: The inputs of its calls, the example first.
        dynamic_shapes: As torch.export takes it.
        tolerance: The relative error that is allowed; None takes that of its dtypes.
        step: An error that is allowed, such as the scale of a quantised output.
    """

    model: nn.Module | ExportedProgram
    calls: Calls
    dynamic_shapes: Any = None
    tolerance: float | None = None
    step: float = 0.0


def lowered(plugins: Sequence[Any]) -> Callable[[Subject], bytes]:
    """Return a function that lowers with `Lowerer`."""

    def lower(subject: Subject) -> bytes:
        given = [subject.model] if _is_exported(subject) else [subject.model, subject.calls[0]]
        made = Lowerer(plugins).lower(*given, dynamic_shapes=subject.dynamic_shapes)
        return made.to_executorch().buffer

    return lower


def partitioned(make: Callable[[], Any]) -> Callable[[Subject], bytes]:
    """Return a function that gives a partitioner to ExecuTorch's own calls."""

    def lower(subject: Subject) -> bytes:
        program = subject.model
        if not _is_exported(subject):
            with torch.no_grad():
                model = copy.deepcopy(subject.model)
                dynamic = subject.dynamic_shapes
                program = torch.export.export(model, subject.calls[0], dynamic_shapes=dynamic)
        return to_edge_transform_and_lower(program, partitioner=[make()]).to_executorch().buffer

    return lower


THEIRS = "executorch"
ORDERS = {
    "cpu": lowered(["cpu"]),
    "openvino, cpu": lowered(["openvino", "cpu"]),
    "cpu, openvino": lowered(["cpu", "openvino"]),
    "partitioner": partitioned(lambda: etdev.partitioner()),
    THEIRS: partitioned(XnnpackPartitioner),
}


@define(eq=False)
class Judge:
    """Judges models; its process is kept from one to the next."""

    process: Process = field(factory=lambda: Process("survey.runtime:call"), init=False)

    def verdict(self, subject: Subject, order: str) -> Verdict:
        """Lower a model, call it, and compare all calls with eager PyTorch."""
        return judged(subject, ORDERS[order], lambda *call: self.process.ask(*call))


def judged(subject: Subject, lower: Callable[[Subject], bytes], call: Any) -> Verdict:
    """Judge what a function lowers, and another one calls.

    Args:
        subject: The model.
        lower: Returns the `.pte`.
        call: Returns outputs and inputs after each of some calls, from the path of a `.pte` and the
            inputs; raises what `Process.ask` does.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        expected = eager(subject)
        try:
            program = lower(subject)
        except EtdevError as error:
            return Verdict("refused", str(error))
        except Exception as error:
            return Verdict("raw", f"{type(error).__name__}: {error}"[:1000])
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "program.pte"
        path.write_bytes(program)
        try:
            ran = call(str(path), [_laid_out(inputs) for inputs in subject.calls])
        except DiedError as error:
            return Verdict(str(error).split()[0], str(error))
        except FailedError as error:
            # OperatorMissing, of which `Lowerer` warns: other runtimes may have the kernel.
            kind = "no kernel" if _NO_KERNEL in str(error) else "failed"
            return Verdict(kind, str(error))
    verdict = compared(ran, expected, subject)
    return in_double(ran, expected, subject) if verdict.kind == "wrong" else verdict


def in_double(ran: Any, expected: Any, subject: Subject) -> Verdict:
    """Compare once more with float64, since eager PyTorch may be further off.

    A model is `unstable` if PyTorch in its own dtype is outside of the tolerance, too, and half as
    far from float64 or further.
    """
    verdict = compared(ran, expected, subject)
    try:
        # Of a program's module the copy, too: it has the program's own weights.
        model = copy.deepcopy(subject.model.module() if _is_exported(subject) else subject.model)
        exact = []
        with torch.no_grad():
            for inputs, (outputs, after) in zip(subject.calls, expected, strict=True):
                values = _flat(model.double()(*pytree.tree_map(_double, copy.deepcopy(inputs))))
                rounded = [a.to(b.dtype) for a, b in zip(values, outputs, strict=True)]
                exact.append((rounded, after))
    except Exception:
        # Such as a model that names the dtype that it computes in.
        return verdict
    again, theirs = compared(ran, exact, subject), compared(expected, exact, subject)
    nearer = f"as in float64, where PyTorch {verdict.text}"
    if again.kind == "right":
        return Verdict("right", nearer, again.error)
    unstable = theirs.kind == "wrong" and again.error <= 2 * theirs.error
    return (
        Verdict("unstable", f"against float64: {again.text}", again.error) if unstable else verdict
    )


def _laid_out(inputs: Any) -> list[Any]:
    """Return the leaves of inputs in the orders that ExecuTorch's runtime takes for Python."""
    orders = (torch.contiguous_format, torch.channels_last)
    return [
        value.contiguous()
        if isinstance(value, torch.Tensor)
        and not any(value.is_contiguous(memory_format=order) for order in orders)
        else value
        for value in _flat(inputs)
    ]


def _double(value: Any) -> Any:
    wide = isinstance(value, torch.Tensor) and value.is_floating_point()
    return value.double() if wide else value


def eager(subject: Subject) -> list[tuple[list[Any], list[Any]]]:
    """Call the model in eager PyTorch; return outputs and inputs after each call."""
    model = subject.model.module() if _is_exported(subject) else copy.deepcopy(subject.model)
    made = []
    with torch.no_grad(), torch.random.fork_rng(devices=[]):
        for inputs in subject.calls:
            own = copy.deepcopy(inputs)
            made.append((copy.deepcopy(_flat(model(*own))), _flat(own)))
    return made


def is_random(subject: Subject) -> bool:
    """Return True if eager PyTorch gives other values with another seed."""
    results = []
    for seed in range(2):
        torch.manual_seed(seed)
        results.append(eager(subject))
    return compared(*results, subject).kind == "wrong"


def compared(ran: Any, expected: Any, subject: Subject) -> Verdict:
    """Compare what a program gave with what eager PyTorch gave."""
    largest, looked = 0.0, 0
    tolerance = tolerance_of(subject) if subject.tolerance is None else subject.tolerance
    for call, (got, wanted) in enumerate(zip(ran, expected, strict=True)):
        for kind, ours, theirs in zip(("output", "input"), got, wanted, strict=True):
            if len(ours) != len(theirs):
                return Verdict("wrong", f"call {call}: {len(ours)} {kind}s, not {len(theirs)}")
            for index, (a, b) in enumerate(zip(ours, theirs, strict=True)):
                where = f"call {call}, {kind} {index}"
                if isinstance(a, torch.Tensor) != isinstance(b, torch.Tensor):
                    a, b = torch.as_tensor(a), torch.as_tensor(b)
                    a = a.to(b.dtype)
                a, b = torch.as_tensor(a), torch.as_tensor(b)
                if (a.shape, a.dtype) != (b.shape, b.dtype):
                    both = f"{a.dtype} {tuple(a.shape)}, not {b.dtype} {tuple(b.shape)}"
                    return Verdict("wrong", f"{where} is {both}")
                looked += b.numel() if kind == "output" else 0
                error, reason = _error(a, b, tolerance, subject.step)
                largest = max(largest, error)
                if reason:
                    return Verdict("wrong", f"{where} {reason}", error)
    return Verdict("right" if looked else "nothing", error=largest)


def _error(
    a: torch.Tensor, b: torch.Tensor, tolerance: float, step: float
) -> tuple[float, str | None]:
    if not b.is_floating_point() and not b.is_complex():
        off = (a.to(torch.float64) - b.to(torch.float64)).abs().max() if b.numel() else 0.0
        count = int((a != b).sum())
        return float(bool(count)), f"differs in {count} places by {off}" if off > step else None
    kind = torch.complex128 if b.is_complex() else torch.float64
    a, b = a.to(kind), b.to(kind)
    finite = b.isfinite()
    if not torch.equal(
        a[~finite].nan_to_num(0.5, 2.0, -2.0), b[~finite].nan_to_num(0.5, 2.0, -2.0)
    ):
        return float("inf"), "differs where PyTorch has NaN or an infinity"
    if not finite.any():
        return 0.0, None
    largest = max(float(b[finite].abs().max()), LEAST)
    error = float((a[finite] - b[finite]).abs().max())
    if error <= max(tolerance * largest, step):
        return error / largest, None
    return error / largest, f"is off by {error:.3g} of {largest:.3g}"


def tolerance_of(subject: Subject) -> float:
    """Return the tolerance of the coarsest dtype that a model has or makes."""
    values = [leaf for call in subject.calls for leaf in _flat(call)]
    if _is_exported(subject):
        values += subject.model.state_dict.values()
        values += [node.meta.get("val") for node in subject.model.graph.nodes]
    else:
        values += subject.model.state_dict().values()
    dtypes = {value.dtype for value in values if isinstance(value, torch.Tensor)}
    rough = [TOLERANCES[d] for d in dtypes & {torch.float16, torch.bfloat16}]
    wide = dtypes & {torch.float64} and not dtypes & {torch.float32}
    return max(rough, default=TOLERANCES[torch.float64] if wide else FLOAT32)


def _is_exported(subject: Subject) -> bool:
    return isinstance(subject.model, ExportedProgram)


def _flat(values: Any) -> list[Any]:
    return [value for value in pytree.tree_leaves(values) if value is not None]
