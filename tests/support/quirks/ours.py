"""Repros on etdev: `PYTHONPATH=tests python -m support.quirks.ours NAME...`.

With `ETDEV_REPROS=partitioner`, by `etdev.partitioner()` in ExecuTorch's own loop.
"""

from __future__ import annotations

import os
from typing import Any

import torch
from etdev_cpu.plugin import CpuPlugin

import etdev
from etdev import EtdevError, EtdevWarning, Lowerer
from support.quirks import Repro, plain
from support.quirks.forked import main
from support.quirks.verdict import judge

# By default XNNPACK's answers to NaN and infinities are taken as they are.
PLUGINS = {"portable": [], "xnnpack": [CpuPlugin(nan="exact")], "openvino": ["openvino"]}


def lower(repro: Repro) -> Any:
    """Lower a repro with `Lowerer`; return the bytes of the .pte."""
    lowerer = Lowerer(PLUGINS[repro.backend], cache="off")
    if repro.strict:
        return lowerer.lower(plain.exported(repro)).to_executorch().buffer
    methods = {name: (module, repro.examples[name]) for name, module in repro.methods.items()}
    if len(methods) > 1:
        return lowerer.lower(methods).to_executorch().buffer
    ((module, inputs),) = methods.values()
    lowered = lowerer.lower(module, inputs, dynamic_shapes=repro.dynamic_shapes)
    return lowered.to_executorch().buffer


def partition(repro: Repro) -> Any:
    """Lower a repro with ExecuTorch's own loop and `etdev.partitioner()`."""
    from executorch.exir import to_edge_transform_and_lower

    plugins = PLUGINS[repro.backend]
    partitioners = {name: [etdev.partitioner(plugins, method=name)] for name in repro.methods}
    manager = to_edge_transform_and_lower(plain.exported(repro), partitioner=partitioners)
    return manager.to_executorch().buffer


def warm_up() -> None:
    """Import and cache what every lowering needs."""
    plain.warm_up()
    lower(Repro(torch.nn.Linear(2, 2), [torch.ones(1, 2)], backend="xnnpack"))


if __name__ == "__main__":
    way = partition if os.environ.get("ETDEV_REPROS") == "partitioner" else lower
    main(lambda name: judge(name, way, (EtdevError,), EtdevWarning), warm_up)
