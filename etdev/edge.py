"""From ATen to edge dialect, once for all plugins, with the ops whole that some plugin wants so."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from executorch.exir import EdgeCompileConfig, EdgeProgramManager, to_edge_transform_and_lower
from executorch.exir.backend.partitioner import Partitioner, PartitionResult
from torch._ops import OpOverload
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.claims import KeepWhole
from etdev.errors import PluginError
from etdev.graph import op_name
from etdev.plugins import Plugin

# `custom` is the node metadata that torch.export hands through decompositions.
_MARK = "etdev.kept_whole"


def to_edge(
    programs: Mapping[str, ExportedProgram],
    plugins: Sequence[Plugin],
    compile_config: EdgeCompileConfig | None = None,
    **options: Any,
) -> EdgeProgramManager:
    """Convert ATen programs to the edge dialect, with every plugin's wishes at once.

    Args:
        programs: ATen program of each method.
        plugins: Who is asked for ops to keep whole.
        compile_config: ExecuTorch's, not changed.
        options: Other arguments of `to_edge_transform_and_lower`, such as `constant_methods`,
            `transform_passes` and `generate_etrecord`.

    Returns:
        ExecuTorch's manager of the edge programs, nothing delegated yet.
    """
    # ExecuTorch writes the preserved ops into the config it is given.
    config = copy.copy(compile_config) if compile_config else EdgeCompileConfig()
    return to_edge_transform_and_lower(
        dict(programs),
        partitioner={method: [_Wishes(plugins, method)] for method in programs},
        compile_config=config,
        **options,
    )


def whole_ops(
    plugins: Sequence[Plugin], program: ExportedProgram, method: str
) -> tuple[list[OpOverload], Callable[[Node], bool] | None]:
    """The plugins' wishes as ExecuTorch's `Partitioner.ops_to_not_decompose` wants them.

    What is kept is marked with who wanted it; `take_marks` finds it in the edge program.
    """
    # ExecuTorch asks again with the edge program, to complain of whole ops that nobody has taken.
    # The plan sees to those.
    if program.dialect == "EDGE":
        return [], None
    wishes = _wishes(plugins, program, method)

    def wanted(node: Node) -> bool:
        # Branches of control flow have graphs of their own and nobody claims in them.
        if node.graph is not program.graph:
            return False
        wishers = [name for name, wish in wishes.items() if wish.wants(node)]
        if wishers:
            mark = {_MARK: (str(node.target), *wishers)}
            node.meta["custom"] = {**node.meta.get("custom", {}), **mark}
        return bool(wishers)

    ops = dict.fromkeys(op for wish in wishes.values() for op in wish.ops)
    return list(ops), wanted if wishes else None


def take_marks(program: ExportedProgram) -> dict[str, tuple[str, ...]]:
    """Ops that were kept whole, with the plugins that wanted them; removes the marks."""
    found = {}
    for node in program.graph.nodes:
        custom = node.meta.get("custom", {})
        if _MARK not in custom:
            continue
        op, *wishers = custom[_MARK]
        # Nodes that the conversion puts beside an op inherit its mark.
        if op_name(node) == op:
            found[node.name] = tuple(wishers)
        node.meta["custom"] = {key: value for key, value in custom.items() if key != _MARK}
    return found


def _wishes(
    plugins: Sequence[Plugin], program: ExportedProgram, method: str
) -> dict[str, KeepWhole]:
    wishes = {}
    for plugin in plugins:
        wish = plugin.ask("keep_whole", program=program, method=method)
        if isinstance(wish, KeepWhole):
            wishes[plugin.name] = wish
        elif wish is not None:
            raise PluginError(plugin.name, f"keep_whole returned {wish!r}", "return a KeepWhole")
    return wishes


class _Wishes(Partitioner):  # type: ignore[misc]
    """Delegates nothing; the partitioner API is ExecuTorch's way to ask for whole ops."""

    def __init__(self, plugins: Sequence[Plugin], method: str) -> None:
        super().__init__()
        self._plugins = plugins
        self._method = method

    def ops_to_not_decompose(self, ep: ExportedProgram) -> tuple[list[Any], Any]:
        return whole_ops(self._plugins, ep, self._method)

    def partition(self, exported_program: ExportedProgram) -> PartitionResult:
        return PartitionResult(exported_program, {})


def rebuilt(
    manager: EdgeProgramManager,
    programs: Mapping[str, ExportedProgram],
    compile_config: EdgeCompileConfig | None,
    constant_methods: Mapping[str, Any] | None,
) -> EdgeProgramManager:
    """A manager like another, with other programs: what `to_backend` would have returned."""
    config = copy.copy(compile_config) if compile_config else EdgeCompileConfig()
    # The programs hold delegate calls now, which the edge verifier doesn't know.
    config._check_ir_validity = False
    made = EdgeProgramManager(dict(programs), copy.deepcopy(constant_methods), config)
    made._etrecord = manager._etrecord
    return made
