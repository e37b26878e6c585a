"""XNNPACK's own compiler, called once for all partitions of one structure."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from unittest.mock import patch

from executorch.backends.xnnpack.partition.graphs import bilinear_2d, sdpa
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from executorch.exir.backend.compile_spec_schema import CompileSpec
from torch.export import ExportedProgram

from etdev.graph import interpreted_copy
from etdev.schema.compiler_cache import keep, kept
from etdev_cpu.layers import short
from etdev_cpu.own_dequantisers import give_own_dequantisers
from etdev_cpu.own_weights import give_own_weights
from etdev_cpu.payload import BACKEND_ID
from etdev_cpu.sources import hide_sources
from etdev_cpu.structure import Structure, structure_of
from etdev_cpu.template import Template, template_of
from etdev_cpu.weight_only import prepare_weight_only

# A template is as large as a payload without weights: a few kilobytes.
_MOST = 256
_TEMPLATES: dict[bytes, Template] = {}
# Held while XNNPACK's compiler is given fewer patterns.
_PATTERNS = threading.Lock()


class XnnpackByStructure(BackendDetails):  # type: ignore[misc]
    """Gives the very bytes that XnnpackBackend would give, with less work.

    The layers of a model are mostly alike. Compiling is retracing a program 17 times, and hardly
    ever do the values of weights matter for it.
    """

    equals = BACKEND_ID

    @classmethod
    def copy_exported_program_for_preprocess(
        cls, edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> ExportedProgram:
        """No copy, since `preprocess` makes its own where it needs one."""
        return edge_program

    @staticmethod
    def preprocess(
        edge_program: ExportedProgram, compile_specs: list[CompileSpec]
    ) -> PreprocessResult:
        """Compile a partition, or fill the template of one that has been compiled.

        Args:
            edge_program: Its program; it is not changed.
            compile_specs: Its compile specs.
        """
        structure = structure_of(edge_program, compile_specs)
        known = _known(structure) if structure else None
        if structure and known:
            return known.fill(structure)
        result = _compiled(edge_program, compile_specs)
        if structure and (template := template_of(structure, result)):
            _TEMPLATES[structure.key] = template
            keep(structure.key, template.to_bytes())
        return result


def _known(structure: Structure) -> Template | None:
    """Return the template of a structure that this process or another one has compiled."""
    if len(_TEMPLATES) >= _MOST:
        _TEMPLATES.clear()
    template = _TEMPLATES.get(structure.key)
    if template is None and (data := kept(structure.key)):
        template = Template.from_bytes(data, structure)
        _TEMPLATES.update({structure.key: template} if template else {})
    return template


def _compiled(program: ExportedProgram, specs: list[CompileSpec]) -> PreprocessResult:
    # XNNPACK's passes change the graph and put other weights in place of some, but write to none.
    copied = interpreted_copy(program)
    give_own_weights(copied)
    give_own_dequantisers(copied)
    prepare_weight_only(copied)
    for node in copied.graph.nodes:
        # torch leaves out an upper limit or an alpha of 1, and XNNPACK's compiler reads them.
        if (short(node), len(node.args)) in (("hardtanh", 2), ("elu", 1)):
            node.args = (*node.args, 1.0)
        # Every pass copies all that this says of the passes before it, and nothing here reads it.
        node.meta.pop("from_node", None)
    # What was a layer in the whole program may have lost a part of it to another plugin.
    hide_sources(copied.graph)
    with _needed_patterns(copied):
        return XnnpackBackend.preprocess(copied, specs)


@contextmanager
def _needed_patterns(program: ExportedProgram) -> Iterator[None]:
    """Let XNNPACK's compiler make only the patterns that may be in a program.

    Its first call in a process exports six models, which takes longer than a small network.
    """
    ops = {short(node) for node in program.graph.nodes}
    with _PATTERNS, ExitStack() as stack:
        if not any("softmax" in op or "attention" in op for op in ops):
            stack.enter_context(patch.object(sdpa, "get_graphs", list))
        if not any("upsample" in op or "index" in op for op in ops):
            stack.enter_context(patch.object(bilinear_2d, "get_graphs_dict", dict))
        yield
