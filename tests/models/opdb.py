"""torch's own database of operators, as models: an operator with one of its samples."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from typing import Any

import torch
from attrs import frozen
from torch import nn
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

from etdev import Lowerer
from etdev.errors import EtdevError, VerifyError

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
    program = _exported(name)
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
    return Verdict("unverified" if checked.unverified else "right")


def _exported(name: str) -> torch.export.ExportedProgram | None:
    op = ENTRIES[name]
    dtypes = [dtype for dtype in _DTYPES if dtype in op.dtypes]
    if not dtypes:
        return None
    torch.manual_seed(0)
    for sample in list(op.sample_inputs("cpu", dtypes[0], requires_grad=False))[:5]:
        leaves, spec = pytree.tree_flatten((sample.input, tuple(sample.args), dict(sample.kwargs)))
        tensors = tuple(leaf.detach() for leaf in leaves if isinstance(leaf, torch.Tensor))
        marked = [_TENSOR if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        try:
            return torch.export.export(_Call(op, marked, spec), tensors)
        except Exception:  # Some samples can't be exported, whatever follows.
            continue
    return None


def _kind(text: str) -> str:
    kinds = {"no kernel": "no kernel", "died of": "crashed", "runtime failed": "failed"}
    return next((kind for mark, kind in kinds.items() if mark in text), "wrong")
