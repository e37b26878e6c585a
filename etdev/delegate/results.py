"""Checks of the results that a backend's `preprocess` returns."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.backends import compiler_of
from etdev.errors import CompileError
from etdev.schema.partition import Partition
from etdev.upstream.emission import DELEGATE_INFO, NamedDataStoreOutput

_RESULT = "return PreprocessResult(processed_bytes=...) from preprocess"
_DATA = "give NamedDataStore.get_named_data_store_output(), or None"
_BYTES = (bytes, bytearray, memoryview)
# The fields of a result that `Job.module` hands on.
_FIELDS = ("processed_bytes", "debug_handle_map", "data_store_output", DELEGATE_INFO)


def unknown_fields(value: object, known: Collection[str]) -> str:
    """Return the names of the fields that are set in a value and not known; empty for none."""
    return ", ".join(k for k, v in vars(value).items() if k not in known and v is not None)


def checked(partition: Partition, result: Any) -> PreprocessResult:
    """Return the result of a backend for a partition, with its payload as bytes.

    Raises:
        CompileError: It is not a PreprocessResult, or can't be written into a .pte.
    """
    if not isinstance(result, PreprocessResult):
        raise _fault(partition, f"returned {_shown(result)}", _RESULT)
    if unknown := unknown_fields(result, _FIELDS):
        raise _fault(partition, f"returned {unknown}, which this etdev can't write", "leave it out")
    payload, data = result.processed_bytes, result.data_store_output
    for what, value, kinds, cure in (
        ("a PreprocessResult with processed_bytes", payload, _BYTES, "give bytes"),
        ("the data_store_output", data, NamedDataStoreOutput | None, _DATA),
        ("the debug_handle_map", result.debug_handle_map, Mapping | None, "give a dict, or None"),
    ):
        if not isinstance(value, kinds):
            raise _fault(partition, f"returned {what} {_shown(value)}", cure)
    # ExecuTorch's emitter fails on other types of bytes, and names no backend.
    return result if type(payload) is bytes else replace(result, processed_bytes=bytes(payload))


def checked_together(
    partitions: Sequence[Partition], results: Any
) -> dict[str, list[PreprocessResult]]:
    """Return the results of a backend for partitions that it compiled together, by method.

    Raises:
        CompileError: A result is missing, superfluous, or refused by `checked`.
    """
    if not isinstance(results, Mapping):
        cure = "return a dict of method to a list of PreprocessResult"
        what = f"returned {_shown(results)} from preprocess_multimethod"
        raise _fault(partitions[0], what, cure)
    by_method: dict[str, list[Partition]] = {}
    for partition in partitions:
        by_method.setdefault(partition.method, []).append(partition)
    for method, own in by_method.items():
        given = results.get(method)
        count = len(given) if isinstance(given, (list, tuple)) else 0
        if count != len(own):
            what = (
                f"returned {count} results for the {len(own)} partitions of method {method!r} "
                "from preprocess_multimethod"
            )
            raise _fault(own[0], what, "return one for each, in the order in which they are given")
    return {
        method: [checked(*pair) for pair in zip(own, results[method], strict=True)]
        for method, own in by_method.items()
    }


def _fault(partition: Partition, what: str, cure: str) -> CompileError:
    who = f"{compiler_of(partition)} compiled {partition.where} and"
    return CompileError(partition.plugin, f"{who} {what}", cure)


def _shown(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}: {text[:50]}..."
