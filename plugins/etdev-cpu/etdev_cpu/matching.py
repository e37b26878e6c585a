"""XNNPACK's matcher: the configs of its partitioner, and the reasons that they give."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from executorch.backends.xnnpack.partition.config import ALL_PARTITIONER_CONFIGS, gemm_configs
from executorch.backends.xnnpack.partition.config.generic_node_configs import (
    ConstantPadConfig,
    EluConfig,
    MeanDimConfig,
)
from executorch.backends.xnnpack.partition.config.xnnpack_config import ConfigPrecisionType
from executorch.backends.xnnpack.utils.quant_utils import is_dequant, tag_as_implicit_q_dq
from executorch.exir.backend.utils import WhyNoPartition
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import first_line
from etdev_cpu.layers import shape_of
from etdev_cpu.quantisers import is_weight_only, pads_integers
from etdev_cpu.reasons import in_words, of_values


class PadConfig(ConstantPadConfig):  # type: ignore[misc]
    """ExecuTorch's config for pads, which pads integers, too, and not only the floats of them."""

    def supported_precision_types(self) -> list[ConfigPrecisionType]:
        """Return the precisions that a pad is taken in."""
        return [ConfigPrecisionType.FP32, ConfigPrecisionType.STATIC_QUANT]

    def get_node_and_deps(self, node: Node, ep: ExportedProgram) -> list[Node]:
        """Return a pad, with the dequantiser and quantiser around one that can pad integers."""
        if pads_integers(node):
            return list(super().get_node_and_deps(node, ep))
        return [node] if ConfigPrecisionType.FP32 in self.enabled_precision_types else []


class MeanConfig(MeanDimConfig):  # type: ignore[misc]
    """ExecuTorch's config for means, which takes one of a dynamic size in floats only.

    XNNPACK's mean of int8 values is wrong once a batch has grown.
    """

    def get_node_and_deps(self, node: Node, ep: ExportedProgram) -> list[Node]:
        """Return a mean, with the dequantiser and quantiser around one of fixed sizes."""
        if all(isinstance(size, int) for size in shape_of(node.all_input_nodes[0])):
            return list(super().get_node_and_deps(node, ep))
        return [node] if ConfigPrecisionType.FP32 in self.enabled_precision_types else []


class LinearConfig(gemm_configs.LinearConfig):  # type: ignore[misc]
    """ExecuTorch's config for linear layers, which takes int8 weights of float inputs, too.

    XNNPACK computes such a layer in float32, and reads its weight as it is stored.
    """

    def get_deps(self, node: Node, ep: ExportedProgram) -> tuple[bool, list[Node]]:
        """Return if a layer can be taken, and its weight, dequantiser, scales and bias."""
        if not is_weight_only(node) or self.enabled_precision_types == [ConfigPrecisionType.FP32]:
            return super().get_deps(node, ep)  # type: ignore[no-any-return]
        weighed, weights = self._get_weight_deps(node, ep, ConfigPrecisionType.STATIC_QUANT)
        biased, biases = self._get_bias_deps(node, ep, ConfigPrecisionType.STATIC_QUANT)
        for dequantiser in filter(is_dequant, weights):
            tag_as_implicit_q_dq(dequantiser)
        return weighed and biased, [*weights, *biases]


_OURS = {
    ConstantPadConfig: PadConfig,
    MeanDimConfig: MeanConfig,
    gemm_configs.LinearConfig: LinearConfig,
}


def configs() -> list[type[Any]]:
    """Return the configs of ExecuTorch's partitioner, with ours in place of some of its own.

    It doesn't list the one for ELUs, which XNNPACK has.
    """
    every = dict.fromkeys((*ALL_PARTITIONER_CONFIGS, EluConfig))
    return [_OURS.get(config, config) for config in every]


def catch_failures(configs: Iterable[Any]) -> Mapping[str, str]:
    """Have configs refuse the nodes that they fail on, instead of failing on the whole program.

    Some read arguments that a call may leave out, some calculate with numbers that are symbolic.

    Args:
        configs: The configs of one XnnpackPartitioner; they are changed.

    Returns:
        Why configs failed, by node name; filled while they are asked.
    """
    failures: dict[str, str] = {}

    def refusing(asked: Callable[..., Any], refusal: object) -> Callable[..., Any]:
        def ask(node: Node, program: ExportedProgram) -> Any:
            try:
                return asked(node, program)
            except Exception as error:
                failures[node.name] = f"XNNPACK's check raised {first_line(error)}"
                return refusal

        return ask

    for config in configs:
        config.check_constraints = refusing(config.check_constraints, False)
        config.get_partition = refusing(config.get_partition, ())
    return failures


@contextmanager
def reasons_told() -> Iterator[dict[str, str]]:
    """Collect why XNNPACK refuses nodes, by node name; it says so only in its debug log."""
    reasons: dict[str, str] = {}

    def tell(_: WhyNoPartition, node: Node, reason: str) -> None:
        if reason == "invalid dtype":
            told = of_values(node)
        else:
            told = in_words(reason) or f"XNNPACK: {reason}"
        reasons.setdefault(node.name, told)

    with patch.object(WhyNoPartition, "__call__", tell):
        yield reasons
