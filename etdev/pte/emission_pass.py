"""The pass that applies the quirks of emission, once ExecuTorch has given out memory specs."""

from __future__ import annotations

from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassBase, PassResult

from etdev.schema.quirk import Quirks, Stage


class EmissionPass(PassBase):
    """Applies the quirks of emission to a method, then runs the pass whose place it has.

    Args:
        quirks: The table.
        then: The pass that ExecuTorch would have run in this place.
        method: The method's name, for errors.
    """

    def __init__(self, quirks: Quirks, then: PassBase, method: str) -> None:
        super().__init__()
        self._quirks, self._then, self._method = quirks, then, method

    def call(self, graph_module: GraphModule) -> PassResult | None:
        """Rewrite the memory specs and arguments in place."""
        return self._then(self._quirks.apply(Stage.EMIT, graph_module, self._method))
