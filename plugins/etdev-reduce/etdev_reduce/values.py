"""Values of a case's inputs and weights: those that were captured, or made from a seed."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from attrs import frozen

CAPTURED = ""
# Numbers that compilers and kernels may treat in a way of their own.
_EDGES = '[float("nan"), float("inf"), float("-inf"), 0.0, -0.0, 1.5, -1e30]'
_LEVELS = 4
# Their results are float32, whatever they are made for.
_FLOATS = ("torch.rand", "torch.ones", "torch.zeros")


@frozen(eq=False)
class Value:
    """A recipe for the value of an input or weight.

    Args:
        captured: The value in the user's model.
        fill: A name of `fills`; `CAPTURED` for the value itself.
    """

    captured: Any
    fill: str = CAPTURED

    def fills(self) -> Mapping[str, str]:
        """Return expressions by name that make like values of a seed, with `{0}` for the sizes."""
        tensor = self.captured
        if tensor.dtype == torch.bool:
            return {"ones": "torch.ones({0})", "normal": "torch.rand({0}) > 0.5"}
        if not tensor.numel():
            return {"ones": "torch.ones({0})"}
        if tensor.is_complex():
            return {"ones": "torch.ones({0})", "normal": "torch.randn({0}, dtype=torch.complex64)"}
        low, high = (float(each) for each in tensor.aminmax())
        if not tensor.is_floating_point():
            most = f"torch.randint({int(low)}, {int(high) + 1}, ({{0}},))"
            return {"ones": "torch.ones({0})", "normal": most}
        found = {
            "zeros": "torch.zeros({0})", "ones": "torch.ones({0})", "normal": "torch.randn({0})"
        }  # fmt: skip
        if not (math.isfinite(low) and math.isfinite(high)):
            found["edges"] = f"torch.tensor({_EDGES})[torch.randint(7, ({{0}},))]"
            levels = tensor.unique()
            if len(levels) <= _LEVELS and not levels.isnan().any():
                found["levels"] = _levels(levels.tolist())
            return found
        if low >= 0:
            found["positive"] = "torch.rand({0}) + 0.5"
        if low < high:
            middle, spread = (_rounded(float(f(tensor.double()))) for f in (torch.mean, torch.std))
            found["scaled"] = f"torch.randn({{0}}) * {spread} + {middle}"
        found["ties"] = "torch.randint(-2, 3, ({0},)).float()"
        return found

    def source(self, name: str, sizes: Mapping[int, int], dtypes: Mapping[Any, Any]) -> str:
        """Return the expression that makes the value.

        Args:
            name: Its key among the captured values.
            sizes: New sizes by old ones.
            dtypes: New dtypes by old ones.
        """
        if not isinstance(self.captured, torch.Tensor):
            return literal(self.captured, {})
        shape = [sizes.get(size, size) for size in self.captured.shape]
        dtype = dtypes.get(self.captured.dtype, self.captured.dtype)
        if self.fill == CAPTURED:
            cut = ", ".join(f":{size}" for size in shape)
            changed = shape != list(self.captured.shape)
            text = f"values[{name!r}]" + f"[{cut}]" * changed
            return text if dtype == self.captured.dtype else f"{text}.to({dtype})"
        strides = self.captured.stride()
        order = sorted(range(len(shape)), key=lambda dim: (-strides[dim], dim))
        plain = self.captured.is_contiguous() or 0 in strides
        made = shape if plain else [shape[dim] for dim in order]
        text = self.fills()[self.fill].format(", ".join(map(str, made)) or "()")
        text = text.replace("((),)", "()")
        natural = torch.float32 if text.startswith(_FLOATS) else None
        natural = torch.int64 if text.startswith("torch.randint") else natural
        natural = torch.bool if ">" in text else natural
        natural = torch.float32 if text.endswith(".float()") else natural
        if natural != dtype:
            text = f"({text})" if " " in text.partition("(")[0] or " * " in text else text
            text += f".to({dtype})"
        if not plain:
            back = [order.index(dim) for dim in range(len(shape))]
            text = f"({text})" if " * " in text else text
            text += f".permute({', '.join(map(str, back))})"
        return text


def literal(value: Any, sizes: Mapping[int, int]) -> str:
    """Return the source of a number, dtype or other argument, with new sizes by old ones."""
    if isinstance(value, (bool, str, type(None))):
        return repr(value)
    if isinstance(value, int):
        return str(sizes.get(value, value))
    if isinstance(value, float):
        return repr(value) if math.isfinite(value) else f'float("{value}")'
    if isinstance(value, torch.device):
        return f'torch.device("{value}")'
    if isinstance(value, Sequence):
        return f"[{', '.join(literal(item, sizes) for item in value)}]"
    return str(value)


def _levels(values: Sequence[float]) -> str:
    return f"torch.tensor({literal(values, {})})[torch.randint({len(values)}, ({{0}},))]"


def _rounded(number: float) -> str:
    """Return a number with one digit, which tells nothing of the values behind it."""
    return f"{number:.0e}" if math.isfinite(number) else "1.0"
