"""Application of a recipe to an exported program."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

import torch
from torch.export import Dim, ExportedProgram
from torch.fx import GraphModule

from etdev.errors import TuneError
from etdev_tune.precision import static
from etdev_tune.precision.layers import clean, layers_of, replace
from etdev_tune.precision.recipe import Recipe
from etdev_tune.precision.schemes import Scheme, check, named


def apply(
    recipe: Recipe, program: ExportedProgram, method: str, schemes: Mapping[str, Scheme]
) -> ExportedProgram:
    """Return a program that computes its layers as a recipe says; the given one is not changed.

    Raises:
        TuneError: The recipe names a scheme that there isn't, or one that doesn't fit its layer.
    """
    module = unlifted(program)
    layers = layers_of(module)
    chosen = {layer: scheme for layer, scheme in recipe.layers.items() if layer in layers}
    for name, scheme in chosen.items():
        check(named(scheme, schemes), layers[name])
    fixed = {layer: scheme for layer, scheme in chosen.items() if schemes[scheme].is_static}
    if fixed:
        prefix = f"{method} "
        known = recipe.scales.items()
        scales = {key.removeprefix(prefix): v for key, v in known if key.startswith(prefix)}
        module = static.converted(module, fixed, schemes, scales)
    for name, layer in layers.items():
        if name in chosen and name not in fixed and (made := schemes[chosen[name]].made):
            replace(module, layer, made)
    clean(module)
    arguments, keywords = _example(program, method)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        shapes = dynamic_shapes(program)
        return torch.export.export(module, arguments, keywords, dynamic_shapes=shapes)


def unlifted(program: ExportedProgram) -> GraphModule:
    """Return a copy of a program as a module, which shares its weights."""
    module = program.module(check_guards=False)
    assert isinstance(module, GraphModule)
    return module


def dynamic_shapes(program: ExportedProgram) -> Any:
    """Return the dynamic sizes of a program's inputs, to export it again; None without any."""
    values = {node.name: node.meta.get("val") for node in program.graph.nodes}
    specs = [
        {
            index: Dim.DYNAMIC(min=low, max=high)
            for index, size in enumerate(getattr(values.get(name), "shape", ()))
            if isinstance(size, torch.SymInt)
            for low, high in [bounds(size, program)]
        }
        for name in program.graph_signature.user_inputs
    ]
    if not any(specs):
        return None
    arguments, keywords = program.call_spec.in_spec.unflatten(specs)
    return (*arguments, *keywords.values())


def bounds(size: torch.SymInt, program: ExportedProgram) -> tuple[int | None, int | None]:
    """Return the range of a dynamic size; None for a bound that it doesn't have."""
    # A size that is made of another one, such as 2 * s0, has no range of its own.
    known = program.range_constraints.get(size.node.expr)
    if known is None:
        return None, None
    return max(1, int(known.lower)), int(known.upper) if known.upper < 2**31 else None


def _example(program: ExportedProgram, method: str) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if program.example_inputs is None:
        what = f"method {method!r} has no example inputs, with which it is exported again"
        raise TuneError("precision", what, "export it with torch.export.export")
    arguments, keywords = program.example_inputs
    return tuple(arguments), dict(keywords)
