"""Example inputs that torch.export merges or can't trace."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import torch
from attrs import evolve
from torch.export import ExportedProgram
from torch.fx import Node

from etdev.errors import SourceError
from etdev.schema.method import Method
from etdev.schema.quirk import Quirk, Rejection
from etdev.schema.stages import EXPORT
from etdev.upstream.trees import pytree


def shared_inputs(method: Method) -> list[torch.Tensor]:
    """Return the example inputs that torch.export merges or can't trace.

    They are one tensor with another, made in inference mode, or negative or conjugate views.
    """
    leaves = pytree.tree_leaves((method.inputs, method.kwargs))
    values = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
    times = Counter(map(id, values))
    return [v for v in values if times[id(v)] > 1 or v.is_inference() or v.is_neg() or v.is_conj()]


def copy_inputs(method: Method, _: Sequence[torch.Tensor]) -> Method:
    """Copy example inputs that are one tensor, or that torch can't trace."""
    seen: set[int] = set()

    def own(value: object) -> object:
        if not isinstance(value, torch.Tensor):
            return value
        copied = id(value) in seen or value.is_inference()
        seen.add(id(value))
        return (value.clone() if copied else value).resolve_neg().resolve_conj()

    inputs, kwargs = pytree.tree_map(own, (method.inputs, method.kwargs))
    return evolve(method, inputs=inputs, kwargs=kwargs)


def ignored_inputs(method: Method) -> list[Node]:
    """Return the inputs and weights that torch.export merged with an input of the same example."""
    program = method.model
    if not isinstance(program, ExportedProgram):
        return []
    signature, state = program.graph_signature, program.state_dict
    examples = pytree.tree_leaves(program.example_inputs)
    weights = ((spec.arg.name, state.get(spec.target)) for spec in signature.input_specs)
    named = [*zip(signature.user_inputs, examples, strict=False), *weights]
    times = Counter(id(value) for _, value in named if isinstance(value, torch.Tensor))
    given = {id(example) for example in examples if times[id(example)] > 1}
    repeated = {str(name) for name, value in named if id(value) in given}
    inputs = program.graph.find_nodes(op="placeholder")
    return [node for node in inputs if node.name in repeated and not node.users]


MERGED_INPUTS = Quirk(
    name="merged-inputs",
    stage=EXPORT,
    summary="torch.export makes one input of a tensor that is given as two, and can't trace an "
    "input that was made under torch.inference_mode(), or whose negative or conjugate is still to "
    "be taken.",
    upstream="pytorch/pytorch#144683; torch/_subclasses/meta_utils.py, MetaConverter",
    find=shared_inputs,
    fix=copy_inputs,
)
IGNORED_INPUTS = Quirk(
    name="ignored-inputs",
    stage=EXPORT,
    summary="A program that was exported with one tensor as two inputs, or as input and weight, "
    "ignores one of them.",
    upstream="pytorch/pytorch#144683; torch/_subclasses/meta_utils.py, MetaConverter",
    find=ignored_inputs,
    refusal=Rejection(
        "was exported with one tensor in two places and ignores {found.name!r}",
        "export it with inputs that are tensors of their own",
        error=SourceError,
    ),
)
QUIRKS = (MERGED_INPUTS, IGNORED_INPUTS)
