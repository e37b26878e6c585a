"""Signatures: their mappings made once, while nothing changes them.

A signature makes the mapping of its inputs to buffers, and others, from all its inputs each time
that it is asked. ExecuTorch's passes and its emitter ask for every node and every input.
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

from etdev.errors import LoweringError


def settled(signature: ExportGraphSignature) -> ExportGraphSignature:
    """The same signature for as long as nothing changes it; each of its mappings is made once."""
    copied: ExportGraphSignature = _Settled(signature.input_specs, signature.output_specs)
    return copied


@define(eq=False)
class Settling:
    """A pass that changes nothing: from it on, the signature of its method is settled.

    ExecuTorch changes the signature of a method before the first pass of it, and not after that.

    Args:
        programs: The programs whose methods it may be called for.
    """

    programs: Iterable[ExportedProgram]
    _held: list[ExportGraphSignature] = field(factory=list, init=False)

    def __call__(self, module: GraphModule) -> PassResult:
        for program in self.programs:
            signature = program.graph_signature
            if program.graph_module is module and type(signature) is ExportGraphSignature:
                # The very object: the emitter has no other way to come by it.
                signature.__class__ = _Settled
                self._held.append(signature)
        return PassResult(module, False)

    @contextmanager
    def during(self) -> Iterator[None]:
        """Make the signatures ordinary ones again at the end.

        Raises:
            LoweringError: One was changed meanwhile, so that something was misread.
        """
        try:
            yield
            for signature in self._held:
                for name in _MAPPINGS.keys() & vars(signature).keys():
                    if _MAPPINGS[name](signature) != vars(signature)[name]:
                        what = f"changed {name} of a signature while it was read"
                        raise LoweringError("to_executorch", what, "report it to etdev")
        finally:
            for signature in self._held:
                signature.__class__ = ExportGraphSignature
                for name in _MAPPINGS:
                    vars(signature).pop(name, None)
            self._held.clear()


def _ordinary(signature: ExportGraphSignature, _: Any) -> Any:
    """How to copy one: as an ordinary one, since mappings that can't be changed can't be copied."""
    return ExportGraphSignature, (signature.input_specs, signature.output_specs)


_MAPPINGS: dict[str, Any] = {
    name: member.fget
    for name, member in vars(ExportGraphSignature).items()
    if isinstance(member, property) and member.fget
}
_Settled: Any = type(
    "_Settled",
    (ExportGraphSignature,),
    {
        **{name: cached_property(get) for name, get in _MAPPINGS.items()},
        "__reduce_ex__": _ordinary,
    },
)
