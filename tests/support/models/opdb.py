"""torch's own database of operators, as models: an operator with one of its samples."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch.export import Dim
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from etdev import Lowerer
from etdev.errors import EtdevError, VerifyError

# Nothing says what memory that was never written holds, or the factor of a matrix that has none.
UNDEFINED = {
    *("empty", "empty_like", "empty_permuted", "empty_strided", "new_empty", "new_empty_strided"),
    "linalg.cholesky_ex",
}
_TENSOR = object()
_DTYPES = (torch.float32, torch.int64, torch.bool, torch.complex64)
ENTRIES = {".".join(filter(None, (op.name, op.variant_test_name))): op for op in op_db}


@frozen
class Verdict:
    """What became of an operator.

    Args:
        kind: `right`, `refused`, `unverified`, `not exported`, `no kernel`, `wrong`, `failed`,
            `crashed`, or `raw` for an error that is not etdev's.
        text: The error.
    """

    kind: str
    text: str = ""


class _Call(nn.Module):
    """Calls an operator with tensors, and with the other arguments of a sample."""

    def __init__(self, op: Any, leaves: Sequence[Any], spec: pytree.TreeSpec) -> None:
        super().__init__()
        self._op, self._leaves, self._spec = op, leaves, spec

    def forward(self, *tensors: torch.Tensor) -> Any:
        given = iter(tensors)
        values = [next(given) if leaf is _TENSOR else leaf for leaf in self._leaves]
        first, arguments, keywords = pytree.tree_unflatten(values, self._spec)
        return self._op(first, *arguments, **keywords)


def verdict(name: str, plugins: Sequence[str] = ()) -> Verdict:
    """Export, lower and verify the first sample of an operator that can be exported."""
    program = exported(name)
    if program is None:
        return Verdict("not exported")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            checked = Lowerer(list(plugins)).lower(program).verify(steps=2)
        except VerifyError as error:
            return Verdict(_kind(str(error)), str(error))
        except EtdevError as error:
            return Verdict("refused", str(error))
        except Exception as error:
            return Verdict("raw", f"{type(error).__name__}: {error}")
    text = "; ".join(checked.unverified)
    unverified = "no kernel" if "no kernel" in text else "unverified"
    return Verdict(unverified if text else "right", text)


def exported(
    name: str,
    dtype: torch.dtype | None = None,
    *,
    empty: bool = False,
    dynamic: bool = False,
    filled: bool = False,
) -> torch.export.ExportedProgram | None:
    """Export an operator with its first sample that can be exported; None if none can be.

    Args:
        name: Its name in ENTRIES.
        dtype: The dtype of its inputs; None takes float32, or the first other one that it has.
        empty: Take a sample with a tensor without elements.
        dynamic: Make the first size of each tensor dynamic, up to 64.
        filled: Begin with the first sample whose results have elements, if there is one.
    """
    op = ENTRIES[name]
    dtypes = [each for each in _DTYPES if each in op.dtypes] if dtype is None else [dtype]
    if not dtypes:
        return None
    torch.manual_seed(0)
    samples = list(op.sample_inputs("cpu", dtypes[0], requires_grad=False))
    if empty:
        samples = [sample for sample in samples if not all(t.numel() for t in _tensors(sample))]
    if filled:
        first = next((i for i, sample in enumerate(samples) if _fills(op, sample)), 0)
        samples = samples[first:]
    for sample in samples[:5]:
        leaves, spec = _flat(sample)
        tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
        marked = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        sizes = tuple({0: Dim.AUTO(max=64)} if t.ndim else None for t in tensors)
        try:
            program = torch.export.export(
                _Call(op, marked, spec), tensors, dynamic_shapes=(sizes,) if dynamic else None
            )
        except Exception:  # Some samples can't be exported, whatever follows.
            continue
        if not dynamic or _has_dynamic_sizes(program):
            return program
    return None


def _fills(op: Any, sample: Any) -> bool:
    """Return True if the results of a sample have elements, or can't be computed."""
    try:
        own = copy.deepcopy(sample)
        results = pytree.tree_leaves(op(own.input, *own.args, **own.kwargs))
    except Exception:
        return True
    return any(result.numel() for result in results if isinstance(result, torch.Tensor))


def _has_dynamic_sizes(program: torch.export.ExportedProgram) -> bool:
    first = next(node for node in program.graph.nodes if node.op == "placeholder")
    return any(isinstance(size, torch.SymInt) for size in first.meta["val"].shape)


def _flat(sample: Any) -> tuple[list[Any], pytree.TreeSpec]:
    return pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))


def _tensors(sample: Any) -> list[torch.Tensor]:
    return [leaf for leaf in _flat(sample)[0] if isinstance(leaf, torch.Tensor)]


def _kind(text: str) -> str:
    kinds = {"no kernel": "no kernel", "died of": "crashed", "runtime failed": "failed"}
    return next((kind for mark, kind in kinds.items() if mark in text), "wrong")
