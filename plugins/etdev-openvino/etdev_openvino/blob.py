"""Exports of OpenVINO's CPU device, without the names that differ between processes.

A blob is a header of three pairs of offset and size, a short document, the weights, and last the
model as XML, which OpenVINO disguises. In the XML every layer has a name. Those that OpenVINO makes
up, such as `Constant_9879`, end in a count of all that the process has made so far; layers are
joined by their numbers, inputs and outputs have their places, so no name is ever looked up.

A layer that is marked `precise` is computed in the type that it has, where OpenVINO would otherwise
round float32 to bfloat16 because the CPU has that. Where weights have 8 bits or fewer it would also
quantise what they are multiplied by, unless the model says otherwise.
"""

from __future__ import annotations

import struct
from collections.abc import Collection
from xml.etree import ElementTree

from etdev_openvino.own_weights import give_own_weights

# Offset and size of the document, of the weights and of the model.
_HEADER = struct.Struct("<6Q")
# What each byte of the XML is combined with by exclusive or, over and over.
_DISGUISE = bytes([0x30, 0x60, 0x70, 0x02, 0x04, 0x08, 0x3F, 0x6F, 0x72, 0x74, 0x78, 0x7F])
_COMPRESSED = ("i8", "u8", "i4", "u4", "u2", "nf4")
_PRECISE = {"name": "precise", "version": "0"}


def canonical(blob: bytes, known: Collection[str], precise: bool = False) -> bytes:
    """Return a blob whose names say the same in every process.

    Args:
        blob: What `export_model` gave; that of a device with another format stays as it is.
        known: Names of the nodes of the program. A layer of one of them keeps that part of its
            name, so that it can be told what it was made of.
        precise: Mark every layer as precise.

    Raises:
        ValueError: The layers can't be marked, since the blob has another format.
    """
    text = text_of(blob)
    if not text:
        if precise:
            raise ValueError("float32 can't be had, OpenVINO exported a model of unknown format")
        return blob
    document, length, start, size, end, _ = _HEADER.unpack_from(blob)
    net, data = _parsed(text), memoryview(blob)
    own = [data[start + first :][:count] for first, count in give_own_weights(net, size)]
    added = sum(map(len, own))
    model = _disguised(_text(_renamed(net, frozenset(known), precise)))
    header = _HEADER.pack(document, length, start, size + added, end + added, len(model))
    return b"".join([header, data[_HEADER.size : end], *own, model])


def text_of(blob: bytes) -> bytes:
    """Return the model of a blob, as XML; nothing if the blob has another format."""
    start = _start_of_model(blob)
    text = _disguised(blob[start:]) if start else b""
    return text if text.startswith(b"<?xml") else b""


def _start_of_model(blob: bytes) -> int:
    """Return where the model begins, which is the last part; 0 if this is not such a blob."""
    if len(blob) < _HEADER.size:
        return 0
    document, _, weights, _, model, size = _HEADER.unpack_from(blob)
    fits = _HEADER.size <= document <= weights <= model and model + size == len(blob)
    return model if fits else 0


def _disguised(text: bytes) -> bytes:
    """Text as it is in a blob, and the other way round."""
    mask = (_DISGUISE * (len(text) // len(_DISGUISE) + 1))[: len(text)]
    mixed = int.from_bytes(text, "little") ^ int.from_bytes(mask, "little")
    return mixed.to_bytes(len(text), "little")


def generates_products(blob: bytes) -> bool:
    """Return True if OpenVINO will generate code for products, as for some attention."""
    text = text_of(blob)
    if b'type="Subgraph"' not in text:
        return False
    bodies = [s for s in _parsed(text).iter("layer") if s.get("type") == "Subgraph"]
    return any(inner.get("type") == "MatMul" for body in bodies for inner in body.iter("layer"))


def _parsed(text: bytes) -> ElementTree.Element:
    return ElementTree.fromstring(text)  # OpenVINO wrote it in this process


def _text(net: ElementTree.Element) -> bytes:
    body: bytes = ElementTree.tostring(net, "utf-8")
    return b'<?xml version="1.0"?>\n' + body


def _renamed(
    net: ElementTree.Element, known: Collection[str], precise: bool
) -> ElementTree.Element:
    """Return the model with layers named by their node, type and number."""
    net.set("name", "Model")
    for layer in net.iter("layer"):
        own = f"{layer.get('type')}_{layer.get('id')}"
        layer.set("name", "/".join([*_origins(layer.get("name", ""), known), own]))
        for attribute in layer.iter("attribute"):
            if attribute.get("name") == "fused_names":
                attribute.set("value", ", ".join(_origins(attribute.get("value", ""), known)))
        if precise:
            _mark(layer)
    if precise and any(data.get("element_type") in _COMPRESSED for data in net.iter("data")):
        _keep_activations(net)
    return net


def _mark(layer: ElementTree.Element) -> None:
    notes = layer.find("rt_info")
    if notes is None:
        notes = ElementTree.SubElement(layer, "rt_info")
    if not any(note.get("name") == _PRECISE["name"] for note in notes):
        ElementTree.SubElement(notes, "attribute", _PRECISE)


def _keep_activations(net: ElementTree.Element) -> None:
    """Have layers read their inputs as they are, in groups of 0 that would be quantised."""
    notes = net.find("rt_info")
    if notes is None:
        notes = ElementTree.SubElement(net, "rt_info")
    options = notes.find("runtime_options")
    if options is None:
        options = ElementTree.SubElement(notes, "runtime_options")
    ElementTree.SubElement(options, "DYNAMIC_QUANTIZATION_GROUP_SIZE", {"value": "0"})


def _origins(names: str, known: Collection[str]) -> list[str]:
    """Return the nodes of the program that layers come from; their names begin with the node's."""
    return sorted({name.partition("/")[0] for name in names.split(", ")}.intersection(known))
