"""Inductor's own lowering for a GPU that isn't there: which ATen kernels it would call.

Decomposition, passes and lowering are Inductor's; it stops before code is generated. A properties
object stands in for the GPU, and the first of the kernels to choose from is chosen.
"""

from __future__ import annotations

import contextlib
import types
from collections.abc import Callable, Iterator
from typing import Any
from unittest import mock

import torch
from torch._dispatch.python import enable_python_dispatcher
from torch._dynamo import device_interface
from torch._inductor import ir, select_algorithm
from torch._inductor.decomposition import conv1d_to_conv2d, select_decomp_table
from torch._inductor.fx_passes import misc_patterns
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils import _pytree as pytree

_H100 = types.SimpleNamespace(
    **{"name": "NVIDIA H100", "major": 9, "minor": 0, "multi_processor_count": 132},
    **{"warp_size": 32, "total_memory": 80 << 30, "L2_cache_size": 50 << 20, "gcnArchName": ""},
    **{"max_threads_per_block": 1024, "max_threads_per_multi_processor": 2048},
    **{"regs_per_multiprocessor": 65536, "shared_memory_per_block": 49152},
    **{"shared_memory_per_block_optin": 232448, "shared_memory_per_multiprocessor": 233472},
)
# They move data or are made by kernels that CudaBackend has.
_NO_KERNELS = (ir.NopKernel, ir.MultiOutput, ir.RandomSeeds)


class _LoweredError(Exception):
    """Stops Inductor when it has lowered a graph."""


def traced(call: Callable[..., Any], inputs: tuple[torch.Tensor, ...]) -> tuple[GraphModule, Any]:
    """The ATen ops of a call, as torch.export sees them, and its inputs as fake tensors."""
    mode = FakeTensorMode()
    fake = tuple(mode.from_tensor(value) for value in inputs)
    with mode, torch.no_grad():
        return make_fx(call, tracing_mode="real", pre_dispatch=True)(*fake), fake


def kernels_called(module: GraphModule, inputs: Any, options: dict[str, Any]) -> set[str]:
    """Names of the ATen kernels that Inductor calls for a graph on a GPU.

    Args:
        module: ATen graph.
        inputs: Its inputs, fake.
        options: CudaBackend's options of AOTInductor.

    Raises:
        Exception: Inductor can't lower it, for example has no kernel to choose.
    """
    options = options | {"joint_graph_constant_folding": False, "shape_padding": False}
    mode = inputs[0].fake_mode
    pieces = _decomposed(module, inputs)
    with _gpu(), mode:
        for node in pieces.graph.nodes:
            if "device" in node.kwargs:
                node.kwargs = {**node.kwargs, "device": torch.device("cuda:0")}
            node.meta["val"] = pytree.tree_map_only(torch.Tensor, _moved, node.meta.get("val"))
        pieces.recompile()
        graphs = _lowered(pieces, tuple(map(_moved, inputs)), options)
    operations = [item for graph in graphs for item in graph.operations]
    externs = [item for item in operations if isinstance(item, ir.ExternKernel)]
    return {
        item.cpp_kernel_name or item.python_kernel_name or type(item).__name__
        for item in externs
        if not isinstance(item, _NO_KERNELS)
    }


def _moved(value: torch.Tensor) -> torch.Tensor:
    return value.to("cuda:0")


def _decomposed(module: GraphModule, inputs: Any) -> GraphModule:
    """Decompose as Inductor does; on a GPU it would, but some decompositions need a real one."""
    table = {**select_decomp_table(), torch.ops.aten.conv1d.default: conv1d_to_conv2d}

    def call(*args: Any) -> tuple[torch.Tensor, ...]:
        leaves = pytree.tree_leaves(module(*args))
        return tuple(value for value in leaves if isinstance(value, torch.Tensor))

    mode = inputs[0].fake_mode
    # AOTAutograd traces with Python's dispatcher, which has decompositions that no table has.
    with sdpa_kernel([SDPBackend.MATH]), torch.no_grad(), enable_python_dispatcher(), mode:
        pieces: GraphModule = make_fx(call, decomposition_table=table, tracing_mode="real")(*inputs)
    return pieces


def _lowered(module: GraphModule, inputs: Any, options: dict[str, Any]) -> list[GraphLowering]:
    graphs: list[GraphLowering] = []
    run = GraphLowering.run

    def stop(self: GraphLowering, *args: Any) -> Any:
        result = run(self, *args)
        graphs.append(self)
        if type(self) is GraphLowering:
            raise _LoweredError
        return result

    def first(self: Any, name: str, choices: Any, *_: Any, **__: Any) -> Any:
        choices = [choice for choice in choices if choice is not None]
        if not choices:
            raise self.create_no_valid_choices(name, "none")
        return choices[0].output_node(), None

    selector = select_algorithm.AlgorithmSelectorCache
    with (
        mock.patch.object(GraphLowering, "run", stop),
        mock.patch.object(selector, "__call__", first),
    ):
        try:
            torch._inductor.aot_compile(module, inputs, options=options)
        except Exception as error:
            if "_LoweredError" not in repr(error):
                raise
    return graphs


@contextlib.contextmanager
def _gpu() -> Iterator[None]:
    """Answer what Inductor asks about the GPU."""
    interface = device_interface.CudaInterface
    # Others ask for them too, once a process.
    device_interface.get_interface_for_device("cpu")
    answers = {"get_device_properties": _H100, "current_device": 0, "device_count": 1}
    with contextlib.ExitStack() as stack:

        def answer(owner: Any, name: str, value: Any) -> None:
            stack.enter_context(mock.patch.object(owner, name, staticmethod(lambda *_: value)))

        for owner in (torch.cuda, interface, interface.Worker):
            for name, value in answers.items():
                if hasattr(owner, name):
                    answer(owner, name, value)
        answer(torch.cuda, "get_device_capability", (9, 0))
        answer(interface, "is_available", True)
        for name in ("synchronize", "exchange_device", "maybe_exchange_device"):
            answer(interface, name, 0)
        for owner in (torch.cuda, interface):
            answer(owner, "device", contextlib.nullcontext())
        answer(torch.utils._triton, "triton_hash_with_backend", "none")
        # Looks for patterns by running them on a GPU.
        answer(misc_patterns, "_misc_patterns_init", None)
        stack.enter_context(mock.patch.object(torch.version, "cuda", "13.0"))
        devices = {"cuda": interface, "cuda:0": interface}
        stack.enter_context(mock.patch.dict(device_interface.device_interfaces, devices))
        yield
