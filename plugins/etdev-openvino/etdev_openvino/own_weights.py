"""A weight of its own for each way in which the layers of a delegate read one.

OpenVINO's CPU device packs the weight of a layer, and finds packed weights again by the address of
the weight. So a layer that reads it transposed would compute with what was packed for another one.
Weights with the same bytes are stored once, and have one address.
"""

from __future__ import annotations

import copy
from typing import Any
from xml.etree import ElementTree

# The types of layers that pack their weight, and those that may stand between the two.
_PACKING = ("FullyConnected", "Convolution", "GroupConvolution")
_BETWEEN = ("Transpose", "Convert", "Reshape", "Subtract", "Multiply")


def give_own_weights(net: ElementTree.Element, size: int) -> list[tuple[int, int]]:
    """Give each way of reading a weight but the first a copy of the weight.

    Args:
        net: The model; it is changed.
        size: The number of bytes of all its weights, behind which the copies are put.

    Returns:
        The place of each weight to copy and its number of bytes, in the order of the copies.
    """
    stored: Any = net.find("layers")
    layers = {layer.get("id"): layer for layer in stored}
    edges = {(edge.get("to-layer"), edge.get("to-port")): edge for edge in net.iterfind("edges/*")}
    weights: dict[str, dict[tuple[str, ...], str]] = {}
    copied: list[tuple[int, int]] = []
    for layer in [layer for layer in stored if layer.get("type").startswith(_PACKING)]:
        way, edge = [layer.get("type")], edges[layer.get("id"), "1"]
        while (source := layers[edge.get("from-layer")]).get("type") in _BETWEEN:
            way.append(source.get("type"))
            edge = edges[source.get("id"), "0"]
        if source.get("type") != "Const":
            continue
        data = source.find("data")
        ways = weights.setdefault(data.get("offset"), {})
        key = (*way, data.get("shape"))
        if ways and key not in ways:
            source = copy.deepcopy(source)
            source.set("id", str(len(layers)))
            for port in source.iterfind("output/port"):
                port.attrib.pop("names", None)
            place = size + sum(count for _, count in copied)
            copied.append((int(data.get("offset")), int(data.get("size"))))
            source.find("data").set("offset", str(place))
            layers[source.get("id")] = source
            stored.append(source)
        edge.set("from-layer", ways.setdefault(key, source.get("id")))
    return copied
