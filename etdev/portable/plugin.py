"""The hooks of the built-in plugin that gives portable kernels the nodes that remain."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Literal

from attrs import frozen

from etdev import Claim, KeepWhole, Probe, hookimpl
from etdev.portable import machine

if TYPE_CHECKING:
    from executorch.exir import EdgeCompileConfig
    from torch.export import ExportedProgram
    from torch.fx import Node

    from etdev.quirks import Row


@frozen
class Portable:
    """Portable kernels, which the runtime calls for the nodes that stay in a method's program.

    Args:
        kernels: `optimized` if the runtime has ExecuTorch's optimised kernels, as its packages do,
            or `portable` if it has portable ones alone.
    """

    kernels: Literal["optimized", "portable"] = "optimized"

    # The version of the hooks that it was written for.
    etdev_api: ClassVar[int] = 1

    @hookimpl
    def probe(self) -> Probe:
        """Fit everywhere, since ExecuTorch includes the kernels."""
        return machine.probe()

    @hookimpl
    def quirks(self) -> Sequence[Row]:
        """Return the faults of kernels that are fixed around them."""
        from etdev.portable.quirks import QUIRKS

        return QUIRKS

    @hookimpl
    def keep_whole(self, program: ExportedProgram) -> KeepWhole:
        """Ops outside Core ATen that have kernels, and those that torch can't decompose."""
        from etdev.portable import support

        return support.keep_whole(program, self.kernels)

    @hookimpl
    def claim_nodes(
        self, program: ExportedProgram, taken: Mapping[str, str], config: EdgeCompileConfig
    ) -> Sequence[Claim]:
        """Claim the nodes that kernels compute right; as a last resort, the rarely wrong ones."""
        from etdev.portable.support import Support

        return Support(config, self.kernels).match(program, taken)

    @hookimpl
    def decompose(self, node: Node, config: EdgeCompileConfig) -> Callable[..., Any] | None:
        """Return a formula for an op without a right kernel, in ops that have one."""
        from etdev.portable.support import Support

        return Support(config, self.kernels).decomposition(node)
