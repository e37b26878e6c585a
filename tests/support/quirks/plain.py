"""Repros on plain ExecuTorch."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch

from support.quirks import Repro, names
from support.quirks.forked import forked
from support.quirks.verdict import Verdict, judge


def exported(repro: Repro) -> dict[str, Any]:
    """Export each method of a repro."""
    options = {"dynamic_shapes": repro.dynamic_shapes, "strict": repro.strict}
    return {
        name: torch.export.export(module, repro.examples[name], **options)
        for name, module in repro.methods.items()
    }


def lower(repro: Repro) -> Any:
    """Lower a repro with nothing but ExecuTorch; return the bytes of the .pte."""
    from executorch.exir import EdgeCompileConfig, to_edge_transform_and_lower

    if repro.quantised:
        import executorch.kernels.quantized  # noqa: F401

    config = EdgeCompileConfig(_core_aten_ops_exception_list=[*repro.exceptions])
    programs = exported(repro)
    manager = to_edge_transform_and_lower(
        programs, partitioner=_partitioners(repro), compile_config=config
    )
    if repro.ranges:
        assert _smallest(manager.exported_program()) == _smallest(programs["forward"])
    return manager.to_executorch().buffer


def _smallest(program: Any) -> list[int]:
    return [int(sizes.lower) for sizes in program.range_constraints.values()]


def _partitioners(repro: Repro) -> list[Any]:
    if repro.backend == "xnnpack":
        from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner

        return [XnnpackPartitioner()]
    if repro.backend == "openvino":
        from executorch.backends.openvino.partitioner import OpenvinoPartitioner
        from executorch.exir.backend.compile_spec_schema import CompileSpec

        return [OpenvinoPartitioner([CompileSpec("device", b"CPU")])]
    return []


@cache
def warm_up() -> None:
    """Import and cache what every lowering needs; nothing is run, which would start threads."""
    from executorch.runtime import Runtime  # noqa: F401

    torch.set_num_threads(1)
    names()
    lower(Repro(torch.nn.Linear(2, 2), [torch.ones(1, 2)], backend="xnnpack"))


def verdict(name: str) -> Verdict:
    """Judge a repro in a fork of this process."""
    warm_up()
    return forked(lambda name: judge(name, lower), name)
