"""Flows: the ways from a program to the bytes of a .pte, ExecuTorch's own and etdev's, as Python.

The statements of a flow read `program`, which torch.export made, and write `buffer`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import asdict, field, frozen, has

from etdev import EtdevError, Lowerer


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
    def maker(self) -> str:
        """Whose fault it is that a program fails."""
        return self.partitioner.partition("(")[0] or "Portable kernels"

    @property
    def name(self) -> str:
        """Its name in reports."""
        if not self.partitioner:
            return "portable kernels"
        function = "to_edge + to_backend" if self.in_two else "to_edge_transform_and_lower"
        return f"{function} with {self.maker}"

    @property
    def statements(self) -> str:
        """Its statements, imports first."""
        lines = self.imports.splitlines()
        if self.in_two:
            lines += [
                "from executorch.exir import EdgeCompileConfig, to_edge",
                "config = EdgeCompileConfig(_check_ir_validity=False)",
                "manager = to_edge(program, compile_config=config)",
                f"for partitioner in [{self.partitioner}]:",
                "    manager = manager.to_backend(partitioner)",
            ]
        else:
            given = f", partitioner=[{self.partitioner}]" if self.partitioner else ""
            lines += [
                "from executorch.exir import to_edge_transform_and_lower",
                f"manager = to_edge_transform_and_lower(program{given})",
            ]
        return "\n".join([*lines, "buffer = manager.to_executorch().buffer\n"])


@frozen(eq=False)
class Etdev:
    """etdev's flow.

    Args:
        settings: Arguments of `Lowerer`.
    """

    settings: Mapping[str, Any] = field(factory=dict)
    maker = "etdev"

    @property
    def name(self) -> str:
        """Its name in reports."""
        names = ", ".join(self.settings.get("plugins") or ())
        return f"etdev with {names}" if names else "etdev"

    @property
    def statements(self) -> str:
        """Its statements, imports first."""
        given = {key: _plain(value) for key, value in self.settings.items()}
        chosen = ", ".join(f"{k}={v!r}" for k, v in given.items() if v not in (None, {}, [], ()))
        return (
            "from etdev import Lowerer\n"
            "with torch.no_grad():\n"
            f"    buffer = Lowerer({chosen}).lower(program).to_executorch().buffer\n"
        )


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


def _plain(value: Any) -> Any:
    """Return an argument of `Lowerer` made of what its source can be written of, such as a pin."""
    if isinstance(value, list):
        return [_plain(each) for each in value]
    return asdict(value) if has(type(value)) else value
