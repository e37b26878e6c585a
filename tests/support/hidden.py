"""Real models with a fault in their middle, for `etdev reduce` to find again."""

from __future__ import annotations

import math
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from etdev_reduce import worker
from etdev_reduce.flows import PORTABLE, etdev, executorch
from etdev_reduce.reduction import Reduction, reduce
from torch import nn
from torch.nn import functional
from torch.utils import _pytree as pytree

from etdev import EtdevError
from etdev.app import EagerMethod
from etdev.runtime.child import COMMAND, Child
from support import quirks
from support.models import decoders, minilm, nets

XNNPACK = executorch(
    "from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner\n"
    "XnnpackPartitioner()"
)
OPENVINO = executorch(
    "from executorch.backends.openvino.partitioner import OpenvinoPartitioner\n"
    "from executorch.exir.backend.compile_spec_schema import CompileSpec\n"
    "OpenvinoPartitioner([CompileSpec('device', b'CPU')])",
)
ETDEV = etdev({"plugins": {"cpu": {}}}, cache=False)
FLOWS = {"portable": PORTABLE, "xnnpack": XNNPACK, "openvino": OPENVINO}
# What the compiler of `planted` computes wrongly: an op, and the shape of its output.
PLANTED = "ETDEV_PLANTED"
# Seconds that the compiler takes longer.
SLOWED = "ETDEV_SLOWED"


class UnetBlock(nn.Module):
    """A block of a U-Net: down, attention, and up again beside the skipped input."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.down = nn.GroupNorm(2, 8), nn.Conv2d(8, 16, 3, stride=2, padding=1)
        self.keys, self.out = nn.Linear(16, 48), nn.Linear(16, 16)
        self.up, self.last = nn.Conv2d(16, 8, 3, padding=1), nn.Conv2d(16, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        small = self.down(functional.silu(self.norm(x)))
        rows = small.flatten(2).mT
        attended = functional.scaled_dot_product_attention(*self.keys(rows).chunk(3, -1))
        rows = rows + self.out(attended)
        small = rows.mT.reshape(small.shape)
        large = self.up(functional.interpolate(small, scale_factor=2.0))
        return self.last(torch.cat([x, large], 1))


def unet_block() -> nets.Model:
    """Return the block with random weights."""
    torch.manual_seed(0)
    return UnetBlock().eval(), (torch.randn(1, 8, 16, 16),)


HOSTS: dict[str, Callable[[], nets.Model]] = {
    "U-Net block": unet_block,
    "decoder step": nets.cached_llama,
    "MobileNetV2": nets.mobilenet,
    "MiniLM": minilm.model,
}


class Hidden(nn.Module):
    """A model that computes something else, too, after the layer in its middle."""

    def __init__(self, host: nn.Module, own: nn.Module) -> None:
        super().__init__()
        self.host, self.own = host, own
        layers = [layer for layer in host.modules() if not [*layer.children()]]
        self.middle = [layers[len(layers) // 2]]

    def forward(self, given: Sequence[Any], own: Sequence[Any]) -> Any:
        found: list[Any] = []
        hook = self.middle[0].register_forward_hook(lambda *_: found.append(self.own(*own)))
        result = self.host(*given)
        hook.remove()
        return result, found


def found(name: str, host: str, budget_s: float = 600.0) -> Reduction:
    """Hide the repro of a row in a model, and reduce what fails then.

    Raises:
        EtdevError: Nothing fails.
    """
    repro, (model, given) = quirks.load(name), HOSTS[host]()
    example = repro.examples["forward"]
    methods = EagerMethod.of_model(Hidden(model, repro.methods["forward"]), (given, example))
    error = EtdevError(name, "has no calls")
    for _, inputs in repro.steps:
        try:
            leaves = pytree.tree_leaves((given, inputs))
            return reduce(methods, [FLOWS[repro.backend]], inputs=leaves, budget_s=budget_s)
        except EtdevError as failed:
            error = failed
    raise error


def plant() -> None:
    """Let XNNPACK's compiler add 1e-3 to the results of an op at one size, as PLANTED says."""
    from executorch.backends.transforms.utils import create_constant_placeholder
    from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
    from executorch.exir.dialects._ops import ops
    from torch.export.graph_signature import InputKind

    compiled = XnnpackBackend.preprocess

    def preprocess(program: Any, specs: Any) -> Any:
        time.sleep(float(os.environ.get(SLOWED, "0")))
        op, _, shape = os.environ.get(PLANTED, "").partition(":")
        graph = program.graph
        for number, node in enumerate([*graph.nodes]):
            value = node.meta.get("val")
            if op in str(node.target) and str([*getattr(value, "shape", ())]) == shape:
                made = f"planted_{number}", InputKind.BUFFER, torch.full((1,), 1e-3), True
                with graph.inserting_before(next(iter(graph.nodes))):
                    off = create_constant_placeholder(program, graph, *made)
                with graph.inserting_after(node):
                    wrong = graph.call_function(ops.edge.aten.add.Tensor, (node, off))
                wrong.meta = dict(node.meta)
                node.replace_all_uses_with(wrong, lambda user, wrong=wrong: user is not wrong)
                program.graph_signature.replace_all_uses(node.name, wrong.name)
        program.graph_module.recompile()
        return compiled(program, specs)

    XnnpackBackend.preprocess = staticmethod(preprocess)


PLANTS: dict[str, tuple[Callable[[], nets.Model], str]] = {
    "U-Net block": (unet_block, "aten.add.Tensor"),
    "decoder step": (nets.cached_llama, "aten.linear.default"),
    "MobileNetV2": (nets.mobilenet, "aten.add.Tensor"),
    # Layer norm undoes an error of the sum before it.
    "MiniLM": (minilm.model, "aten.linear.default"),
    "BERT": (nets.bert, "aten.linear.default"),
    "Llama": (nets.llama, "aten.add.Tensor"),
    "ResNet-18": (nets.resnet18, "aten.add.Tensor"),
    "attention": (decoders.attention, "aten.linear.default"),
    "conv net": (nets.conv_net, "aten.linear.default"),
    "MLP": (nets.mlp, "aten.linear.default"),
}


def planted(name: str) -> Reduction:
    """Reduce a model of which XNNPACK's compiler gets an op wrong, at its largest size."""
    make, op = PLANTS[name]
    methods = EagerMethod.of_model(*make())
    nodes = methods["forward"].program.run_decompositions({}).graph.nodes
    shapes = [node.meta["val"].shape for node in nodes if str(node.target) == op]
    return with_fault(op.removesuffix(".default"), max(shapes, key=math.prod), methods)


def with_fault(
    op: str, shape: Sequence[int], methods: Mapping[str, EagerMethod], slower_s: float = 0.0
) -> Reduction:
    """Reduce methods of which XNNPACK's compiler gets an op of one size wrong, in both flows."""
    # No payload of this compiler goes to a cache.
    env = {PLANTED: f"{op}:{[*shape]}", SLOWED: str(slower_s), "ETDEV_CACHE": "off"}
    child = Child(env=env, command=(*COMMAND, __name__, worker.__name__))
    try:
        return reduce(methods, [ETDEV, XNNPACK], child=child, limit_s=600.0)
    finally:
        child.close()


def hideable() -> Iterator[str]:
    """Yield the repros of one method without sizes that vary."""
    for name in quirks.names():
        repro = quirks.load(name)
        if len(repro.methods) == 1 and repro.dynamic_shapes is None and not repro.strict:
            yield name


if os.environ.get(PLANTED):
    plant()
