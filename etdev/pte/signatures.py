"""Signatures whose mappings are cached while a program is emitted.

A signature computes its mapping of inputs to buffers, and similar ones, from all its inputs on each
access. ExecuTorch's passes, memory planning and emitter access them for every node and every value:
with 600 buffers that took a third of the time of emission, with twice as many four times as much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from typing import Any

from attrs import define, field
from executorch.exir.pass_base import PassResult
from torch.export import ExportedProgram, ExportGraphSignature
from torch.fx import GraphModule


def cached(signature: ExportGraphSignature) -> ExportGraphSignature:
    """Return a copy of a signature whose mappings are computed once; it must not be changed."""
    copied: ExportGraphSignature = _Cached(signature.input_specs, signature.output_specs)
    return copied


@define(eq=False)
class CachingSignatures:
    """A pass that changes nothing in the graph, and caches the mappings of its method's signature.

    ExecuTorch changes the signature of a method only before the first pass.

    Args:
        programs: The programs whose methods it may be called for.
    """

    programs: Iterable[ExportedProgram]
    _held: list[ExportGraphSignature] = field(factory=list, init=False)

    def __call__(self, module: GraphModule) -> PassResult:
        for program in self.programs:
            signature = program.graph_signature
            if program.graph_module is module and type(signature) is ExportGraphSignature:
                # The emitter reads this very object.
                signature.__class__ = _Cached
                self._held.append(signature)
        return PassResult(module, False)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Make the signatures ordinary ones again at the end."""
        try:
            yield
        finally:
            for signature in self._held:
                signature.__class__ = ExportGraphSignature
                for name in _MAPPINGS:
                    vars(signature).pop(name, None)
            self._held.clear()


class Planning:
    """A memory planning pass that is given a signature with cached mappings.

    Args:
        inner: The pass, which has all other attributes.
    """

    def __init__(self, inner: Any) -> None:
        object.__setattr__(self, "inner", inner)

    def __getattr__(self, name: str) -> Any:
        # A copy has no `inner` at first.
        if name == "inner":
            raise AttributeError(name)
        return getattr(self.inner, name)

    def __setattr__(self, name: str, value: Any) -> None:
        setattr(self.inner, name, value)

    def run(self, module: Any, signature: ExportGraphSignature) -> Any:
        """Plan the memory of a method, which changes no signature."""
        return self.inner.run(module, cached(signature))


def planning(config: Any) -> Any:
    """Wrap a setting for memory planning, which is a pass or a dict of passes by method."""
    if isinstance(config, dict):
        return {name: planning(one) for name, one in config.items()}
    return Planning(config) if hasattr(config, "run") else config


def _ordinary(signature: ExportGraphSignature, _: Any) -> Any:
    """Copy a signature as an ordinary one, since mappings that can't be changed can't be copied."""
    return ExportGraphSignature, (signature.input_specs, signature.output_specs)


_MAPPINGS: dict[str, Any] = {
    name: member.fget
    for name, member in vars(ExportGraphSignature).items()
    if isinstance(member, property) and member.fget
}
_Cached: Any = type(
    "_Cached",
    (ExportGraphSignature,),
    {
        **{name: cached_property(get) for name, get in _MAPPINGS.items()},
        "__reduce_ex__": _ordinary,
    },
)
