"""Repros on etdev: with `Lowerer`, and by `etdev.partitioner()` in ExecuTorch's own loop."""

from __future__ import annotations

from functools import cache
from typing import Any

import torch
from etdev_cpu.plugin import CpuPlugin

import etdev
from etdev import EtdevError, EtdevWarning, Lowerer
from support.quirks import Repro, plain
from support.quirks.forked import forked
from support.quirks.verdict import Lower, Verdict, judge

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


@cache
def warm_up() -> None:
    """Import and cache what every lowering needs."""
    plain.warm_up()
    lower(Repro(torch.nn.Linear(2, 2), [torch.ones(1, 2)], backend="xnnpack"))


def by_lowerer(name: str) -> Verdict:
    """Judge a repro that `Lowerer` lowers, in a fork of this process."""
    return _judged(name, lower)


def by_partitioner(name: str) -> Verdict:
    """Judge a repro that is lowered by `etdev.partitioner()`, in a fork of this process."""
    return _judged(name, partition)


def _judged(name: str, way: Lower) -> Verdict:
    warm_up()
    return forked(lambda name: judge(name, way, (EtdevError,), EtdevWarning), name)
