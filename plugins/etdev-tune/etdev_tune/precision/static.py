"""Static quantisation by PT2E of some layers, with scales from calibration or from a recipe."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from attrs import frozen
from torch.fx import GraphModule, Node
from torchao.quantization.pt2e import ObserverBase
from torchao.quantization.pt2e.quantize_pt2e import convert_pt2e, prepare_pt2e
from torchao.quantization.pt2e.quantizer import (
    QuantizationAnnotation,
    Quantizer,
    SharedQuantizationSpec,
)

from etdev.errors import TuneError
from etdev.graph import written_by
from etdev_tune.precision.layers import layers_of, owners
from etdev_tune.precision.schemes import Scheme, made_quantizer

_BATCH_NORM = torch.ops.aten.batch_norm.default
_ANNOTATION = "quantization_annotation"
# Scale and zero point of a value, by its node.
Scales = Mapping[str, tuple[float, int]]


class ChosenLayers(Quantizer):  # type: ignore[misc]
    """Quantisers of plugins, each for the layers that have its scheme, and for no other node.

    Args:
        chosen: A scheme by layer.
        schemes: The static schemes by name.
    """

    def __init__(self, chosen: Mapping[str, str], schemes: Mapping[str, Scheme]) -> None:
        super().__init__()
        self.chosen = chosen
        names = dict.fromkeys(chosen.values())
        self.quantizers = {name: made_quantizer(schemes[name]) for name in names}
        # The layer of each node that is quantised.
        self.layers: dict[str, str] = {}

    def transform_for_annotation(self, model: GraphModule) -> GraphModule:
        """Let each quantiser change the program, but not its integers."""
        rename(model, _BATCH_NORM, batch_norm)
        before = {node: node.args for node in model.graph.nodes if not is_float(node)}
        for quantizer in self.quantizers.values():
            model = quantizer.transform_for_annotation(model)
        # XNNPACK's makes a float32 tensor of every number that is added, to positions, too.
        for node in model.graph.nodes:
            node.args = before.get(node, node.args)
        return model

    def annotate(self, model: GraphModule) -> GraphModule:
        """Annotate by each quantiser, and keep the notes of the chosen layers."""
        owned = owners(model, layers_of(model))
        kept: dict[Node, QuantizationAnnotation] = {}
        for name, quantizer in self.quantizers.items():
            quantizer.annotate(model)
            for node in model.graph.nodes:
                note = node.meta.pop(_ANNOTATION, None)
                if note and self.chosen.get(owned[node.name]) == name:
                    kept[node] = note
        # A value may share its scale with that of a layer that was not chosen.
        while dropped := [node for node, note in kept.items() if not _is_whole(node, note, kept)]:
            for node in dropped:
                del kept[node]
        for node, note in kept.items():
            node.meta[_ANNOTATION] = note
            self.layers[node.name] = owned[node.name]
        return model

    def validate(self, model: GraphModule) -> None:
        """Do nothing: each quantiser has annotated what it supports."""


@frozen(eq=False)
class Observer:
    """An observer in a program that PT2E prepared.

    Args:
        node: The call of the observer.
        module: The observer.
        layers: Layers for which it observes.
        is_weight: It observes a constant.
    """

    node: Node
    module: Any
    layers: frozenset[str]
    is_weight: bool

    @property
    def key(self) -> str:
        """The name of its value in scales."""
        source = self.node.all_input_nodes[0].name
        return f"{source}/{str(self.module.dtype).removeprefix('torch.')}"


def prepared(
    module: GraphModule, chosen: Mapping[str, str], schemes: Mapping[str, Scheme]
) -> tuple[GraphModule, list[Observer]]:
    """Insert observers for the chosen layers; return the program and its static observers."""
    quantizer = ChosenLayers(chosen, schemes)
    observed = prepare_pt2e(module, quantizer)
    return observed, list(_observers(observed, quantizer.layers))


def converted(
    module: GraphModule, chosen: Mapping[str, str], schemes: Mapping[str, Scheme], scales: Scales
) -> GraphModule:
    """Quantise the chosen layers with known scales; no data is needed.

    Raises:
        TuneError: A value has no scale.
    """
    observed, observers = prepared(module, chosen, schemes)
    observe_weights(observed, observers)
    for observer in observers:
        if observer.is_weight:
            continue
        if observer.key not in scales:
            what = f"the recipe has no scale for {observer.key}"
            raise TuneError("precision", what, "it was made for another model; tune it again")
        scale, zero = scales[observer.key]
        fixed = torch.tensor([scale], dtype=torch.float32), torch.tensor([zero], dtype=torch.int32)
        observer.module.calculate_qparams = lambda fixed=fixed: fixed
    quantised: GraphModule = convert_pt2e(observed)
    rename(quantised, batch_norm, _BATCH_NORM)
    return quantised


def batch_norm(*arguments: Any) -> Any:
    """Call the op; PT2E looks for patterns of training where it sees one, which takes minutes.

    Those that follow a convolution are folded into it before.
    """
    return _BATCH_NORM(*arguments)


def rename(module: GraphModule, old: Any, new: Any) -> None:
    """Replace the function that some nodes call."""
    for node in module.graph.nodes:
        if node.target is old:
            node.target = new


def scales_of(observers: list[Observer]) -> dict[str, tuple[float, int]]:
    """Return the scales that calibrated observers found.

    Raises:
        TuneError: A value has a scale for each channel, or saw nothing.
    """
    found = {}
    for observer in observers:
        if observer.is_weight:
            continue
        scale, zero = observer.module.calculate_qparams()
        if scale.numel() != 1 or not bool(torch.isfinite(scale).all()):
            what = f"{observer.key} has no single finite scale"
            raise TuneError("precision", what, "leave out that quantiser")
        found[observer.key] = float(scale), int(zero)
    return found


def observe_weights(module: GraphModule, observers: list[Observer]) -> None:
    """Show each observer of a constant its value."""
    for observer in observers:
        if observer.is_weight:
            place, _, name = str(observer.node.all_input_nodes[0].target).rpartition(".")
            observer.module(getattr(module.get_submodule(place), name))


def _observers(module: GraphModule, layers: Mapping[str, str]) -> Iterator[Observer]:
    # A state has the scale of its values in calibration, not of the one that it starts with.
    states = {own.target for node in module.graph.nodes for own in written_by(node)}
    for node in module.graph.nodes:
        if node.op != "call_module":
            continue
        own = module.get_submodule(str(node.target))
        if isinstance(own, ObserverBase) and not getattr(own, "is_dynamic", False):
            source = node.all_input_nodes[0]
            # A chain of observers: the value may be observed twice, in other dtypes.
            near = [source, *node.users]
            known = frozenset(layers[n.name] for n in near if n.name in layers)
            is_weight = source.op == "get_attr" and source.target not in states
            yield Observer(node, own, known, is_weight)


def is_float(node: Node) -> bool:
    """Return True if a node's value is a tensor of floating point numbers."""
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_floating_point()


def _is_whole(
    node: Node, note: QuantizationAnnotation, kept: Mapping[Node, QuantizationAnnotation]
) -> bool:
    """Return True if all scales that an annotation shares are annotated."""
    for spec in (*note.input_qspec_map.values(), note.output_qspec):
        if isinstance(spec, SharedQuantizationSpec):
            shared = spec.edge_or_node
            reader = shared[1] if isinstance(shared, tuple) else shared
            if reader is not node and reader not in kept:
                return False
    return True
