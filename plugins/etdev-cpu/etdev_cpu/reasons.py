"""Reasons: what XNNPACK's matcher says in its debug log, in words that a user can act on."""

from __future__ import annotations

import re

import torch
from torch.fx import Node
from torch.fx.experimental.symbolic_shapes import has_free_unbacked_symbols

_STATIC = "XNNPACK packs weights when it compiles, so this one has to be a constant of the model"
_POINTWISE = "XNNPACK resizes and slices to fixed sizes only, and this one is dynamic"
_PATTERN = "quantise the whole layer, as prepare_pt2e does, for XNNPACK to compute it in integers"
# ExecuTorch's text, and ours; `{}` stands for what its parentheses found. The first that fits.
_TEXTS = {
    r"BatchNorm cannot be .* fused with (\S+)": (
        "XNNPACK computes a batch norm only as a part of a convolution or linear layer before "
        "it, or of an image; before this one is {}"
    ),
    r"Unsupported input rank (\S+) for XNN batch norm": (
        "XNNPACK has batch norms of 3 and 4 dimensions, not of {}"
    ),
    r"Batch norm users must only": "XNNPACK gives the result of a batch norm, not its statistics",
    r"Channel dimension must be stat": "XNNPACK needs the channels of a batch norm fixed",
    r"Batch norm (.*) must be static": f"{_STATIC}: the {{}} of a batch norm",
    r"Training batch norm": "XNNPACK has no batch norm in training: call eval() on the model",
    r"Unsupported input rank (?:Size)?\(?(.*?)\)?$": "XNNPACK has max for 4 dimensions, not for {}",
    r"Unsupported (?:in|out)put dtype (\S+)": "XNNPACK has no max of {}",
    r"Unsupported user of max.dim": (
        "XNNPACK gives the values of max, and the indices are read, too: use amax where they "
        "are not needed"
    ),
    r"Prelu weight must be a parameter": f"{_STATIC}: the weight of prelu",
    r"Unsupported precision type (?:\w+\.)?(\w+)": (
        "XNNPACK has no {} for this op, or the plugin's precisions leave it out"
    ),
    r"Expected (weight|bias) to be a static param": f"{_STATIC}: the {{}}",
    r"Expected  ?weight to have a dequantized": (
        f"the input is quantised and the weight not: {_PATTERN}"
    ),
    r"per tensor quantized weights for dynamic": (
        "XNNPACK quantises activations as they come only where the weight has a scale for "
        "each channel: quantise it per channel"
    ),
    r"Expected channel quantized to have scale": (
        "the scales of a weight that is quantised per channel have to be constants of the model"
    ),
    r"Expected quantized node to have a single": (
        "a quantised layer has one reader, its quantiser, and this one is read elsewhere, too"
    ),
    r"Expected output node to have a deq": f"no quantiser follows the layer: {_PATTERN}",
    r"(?i)Expected (?:act|  ?dequant|to find|getitem)": f"the input isn't quantised: {_PATTERN}",
    r"Only support 1D \+ 2D Conv": "XNNPACK has convolutions of 1 and 2 dimensions, not of 3",
    r"only supports standard 2D conv": (
        "XNNPACK quantises the input of plain convolutions of 2 dimensions as it comes: "
        "quantise this one statically, or leave it in floats"
    ),
    r"does not support per input channel": (
        "XNNPACK has no transposed convolution in groups with a weight quantised per channel: "
        "quantise its weight per tensor"
    ),
    r"invalid source partition": "XNNPACK doesn't see this product as the layer that it was",
    r"not enabled precision types": "the plugin's precisions leave out all that this op has",
    r"does not support mixed input dtypes, got: \[(\S+), (\S+)\]": (
        "XNNPACK computes in one dtype, and the inputs are {} and {}: cast one of them in the model"
    ),
    r"(Add|Sub) node doesn't support alpha": (
        "XNNPACK adds and subtracts without alpha: multiply before that in the model"
    ),
    r"ceil mode is not supported for dyn": "XNNPACK pools with ceil_mode at fixed sizes only",
    r"ceil mode is not supported": "XNNPACK has no avg_pool2d with ceil_mode=True",
    r"zero-padding in the averaging": (
        "XNNPACK doesn't count the padding of avg_pool2d: use count_include_pad=False, or pad "
        "before it"
    ),
    r"divisor override is not supp": (
        "XNNPACK has no avg_pool2d with divisor_override: multiply behind it"
    ),
    r"only support concatenation of": "XNNPACK joins 2 tensors or more, not one with itself",
    r"dim-order preserving clones": (
        "XNNPACK doesn't change the order of dimensions in memory: keep the model in one "
        "memory format"
    ),
    r"dim must be the last dim, got dim = (\S+) for tensor of rank (\S+)": (
        "XNNPACK has softmax over the last dimension, not over dimension {} of {}: transpose "
        "before it"
    ),
    r"stride \((.*)\) must be less than or equal to kernel size \((.*)\)": (
        "XNNPACK has no max_pool2d whose stride {} is above its kernel {}"
    ),
    r"dynamic output sizes are not": _POINTWISE,
    r"(?:in|out)put tensor has invalid shape, dim: 0 ": "XNNPACK has no empty tensors",
    r"(?:in|out)put tensor has invalid shape": _POINTWISE,
    r"Symbolic reshape is not supported|Only a single inferred": (
        "XNNPACK reshapes to one dynamic size, written as -1: write the others as numbers"
    ),
    r"GELU does not support fp16": "XNNPACK has no gelu in float16",
    r"dtype conversion from (\S+) to (\S+) is": "XNNPACK doesn't cast {} to {}",
    r"mean.dim only supports averaging 4D tensors, got tensor of rank (\S+)": (
        "XNNPACK has the mean over height and width of 4 dimensions, not of {}"
    ),
    r"mean.dim only supports averaging 4D tensors across": (
        "XNNPACK has the mean over the last 2 of 4 dimensions, and not over others"
    ),
    r"mean.dim does not support dtype": "XNNPACK has no mean in another dtype than its input's",
    r"mean.dim has invalid dims: (.*)": "XNNPACK can't read the dimensions of mean: {}",
    r"mean.dim only supports keepdim": "XNNPACK has mean with keepdim=True only",
    r"only support (?:int powers|power == 2), got (\S+)": (
        "XNNPACK has the square as its only power, not {}"
    ),
    r"requires matching input and output quant": (
        "XNNPACK slices quantised values only where the slice has the scale of its input"
    ),
    r"does not support negative padding": "XNNPACK has no negative padding: slice instead",
    r"unsqueeze_copy only supported on the tr": "XNNPACK adds a dimension only as the last one",
}


def in_words(text: str) -> str | None:
    """Return what XNNPACK's matcher says in words that a user can act on; None if it is unknown."""
    for pattern, words in _TEXTS.items():
        if found := re.search(pattern, text.replace("torch.", "")):
            return words.format(*found.groups())
    return None


def of_values(node: Node) -> str:
    """Return why XNNPACK takes no values such as those of a node and its inputs."""
    given = [source.meta.get("val") for source in node.all_input_nodes]
    tensors = [value for value in given if isinstance(value, torch.Tensor)]
    if len(tensors) < len(given):
        return "XNNPACK takes no number that is computed from sizes or data"
    if any(map(has_free_unbacked_symbols, tensors)):
        return (
            "XNNPACK has no empty tensors, and data decide whether this one is: mask values "
            "instead of selecting them, so that sizes are known"
        )
    if not all(value.numel() for value in tensors):
        return "XNNPACK has no empty tensors"
    dtypes = dict.fromkeys(str(value.dtype).removeprefix("torch.") for value in tensors)
    return f"XNNPACK doesn't take {', '.join(dtypes)} here"
