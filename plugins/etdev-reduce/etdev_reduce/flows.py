"""Flows: the ways from a model to the bytes of a .pte, ExecuTorch's own and etdev's."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from attrs import field, frozen
from torch.export import ExportedProgram


@frozen(eq=False)
class Executorch:
    """ExecuTorch's own flow, with a backend's own partitioner.

    Args:
        imports: The statements that import the partitioner.
        partitioner: The expression that makes it; empty for portable kernels alone.
        in_two: Convert to the edge dialect first, and delegate then, as `to_backend` does.
    """

    imports: str = ""
    partitioner: str = ""
    in_two: bool = False

    @property
    def name(self) -> str:
        """Its name in reports."""
        if not self.partitioner:
            return "portable kernels"
        maker = self.partitioner.partition("(")[0]
        function = "to_edge + to_backend" if self.in_two else "to_edge_transform_and_lower"
        return f"{function} with {maker}"

    def lower(self, program: ExportedProgram) -> bytes:
        """Lower a program; return the bytes of a .pte."""
        from executorch.exir import EdgeCompileConfig, to_edge, to_edge_transform_and_lower

        scope: dict[str, Any] = {}
        exec(self.imports, scope)
        partitioners = eval(f"[{self.partitioner}]", scope)
        if self.in_two:
            manager = to_edge(program, compile_config=EdgeCompileConfig(_check_ir_validity=False))
            for partitioner in partitioners:
                manager = manager.to_backend(partitioner)
        else:
            manager = to_edge_transform_and_lower(program, partitioner=partitioners)
        return bytes(manager.to_executorch().buffer)


@frozen(eq=False)
class Etdev:
    """etdev's flow.

    Args:
        settings: Arguments of `Lowerer`.
    """

    settings: Mapping[str, Any] = field(factory=dict)

    @property
    def name(self) -> str:
        """Its name in reports."""
        plugins = self.settings.get("plugins")
        names = ", ".join(p if isinstance(p, str) else type(p).__name__ for p in plugins or ())
        return f"etdev with {names}" if names else "etdev"

    def lower(self, program: ExportedProgram) -> bytes:
        """Lower a program; return the bytes of a .pte."""
        from etdev import Lowerer

        with torch.no_grad():
            lowered = Lowerer(**self.settings).lower(program)
        return bytes(lowered.to_executorch().buffer)


Flow = Executorch | Etdev
PORTABLE = Executorch()


def flows_of(which: str, partitioner: str | None, settings: Mapping[str, Any]) -> list[Flow]:
    """Return the flows that a user asks for.

    Args:
        which: `etdev`, `executorch` or `both`.
        partitioner: `module:class` instead of the plugins' own partitioners.
        settings: Arguments of `Lowerer`.

    Raises:
        EtdevError: No plugin says which partitioner its backend has, or one that is named can't
            compile here.
    """
    from etdev import EtdevError, Lowerer

    flows: list[Flow] = [Etdev(settings)] if which != "executorch" else []
    if which == "etdev":
        return flows
    if partitioner:
        sources = [_source(partitioner)]
    else:
        # Those that can compile on this machine, as for a lowering.
        asked = Lowerer(**settings).composition.fit(tolerant=False).plugins
        plugins = [plugin for plugin in asked if not plugin.builtin]
        known = (getattr(plugin.implementation, "partitioner_source", "") for plugin in plugins)
        sources = [text.splitlines() for text in known if text]
        made = (plugin.made for plugin in plugins)
        sources += [_source(found[0], found[2]) for found in made if found and found[1]]
        if plugins and not sources:
            if flows:
                return flows
            names = ", ".join(plugin.name for plugin in plugins)
            what = f"{names} doesn't say which partitioner it has"
            raise EtdevError("reduce", what, "give --partitioner MODULE:CLASS")
    imports = "\n".join(line for source in sources for line in source[:-1])
    return [*flows, Executorch(imports, ", ".join(source[-1] for source in sources))]


def _source(partitioner: str, options: Mapping[str, Any] | None = None) -> list[str]:
    module, _, name = partitioner.partition(":")
    given = ", ".join(f"{key}={value!r}" for key, value in (options or {}).items())
    return [f"from {module} import {name}", f"{name}({given})"]
