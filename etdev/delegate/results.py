"""Checks of the results that a backend's `preprocess` returns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from executorch.exir.backend.backend_details import PreprocessResult

from etdev.delegate.backends import compiler_of
from etdev.errors import CompileError
from etdev.schema.partition import Partition
from etdev.upstream.emission import NamedDataStoreOutput

_CURE = "return PreprocessResult(processed_bytes=...) from preprocess"


def checked(partition: Partition, result: Any) -> PreprocessResult:
    """Return the result of a backend for a partition, with its payload as bytes.

    Raises:
        CompileError: It is not a PreprocessResult, or can't be written into a .pte.
    """
    if not isinstance(result, PreprocessResult):
        raise _fault(partition, f"returned {_shown(result)}", _CURE)
    if not isinstance(result.processed_bytes, (bytes, bytearray, memoryview)):
        what = f"returned a PreprocessResult with processed_bytes {_shown(result.processed_bytes)}"
        raise _fault(partition, what, "give bytes")
    if not isinstance(result.data_store_output, NamedDataStoreOutput | None):
        what = f"returned the data_store_output {_shown(result.data_store_output)}"
        raise _fault(partition, what, "give NamedDataStore.get_named_data_store_output(), or None")
    if not isinstance(result.debug_handle_map, Mapping | None):
        what = f"returned the debug_handle_map {_shown(result.debug_handle_map)}"
        raise _fault(partition, what, "give a dict, or None")
    if type(result.processed_bytes) is not bytes:
        # ExecuTorch's emitter fails on other types, and names no backend.
        result = replace(result, processed_bytes=bytes(result.processed_bytes))
    return result


def checked_together(
    partitions: Sequence[Partition], results: Any
) -> dict[str, list[PreprocessResult]]:
    """Return the results of a backend for partitions that it compiled together, by method.

    Raises:
        CompileError: A result is missing, superfluous, or refused by `checked`.
    """
    first = partitions[0]
    if not isinstance(results, Mapping):
        cure = "return a dict of method to a list of PreprocessResult"
        raise _fault(first, f"returned {_shown(results)} from preprocess_multimethod", cure)
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
    """Return a value as text that fits into a message."""
    text = repr(value)
    return text if len(text) <= 60 else f"a {type(value).__name__}: {text[:50]}..."
