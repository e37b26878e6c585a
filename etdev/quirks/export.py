"""Example inputs that torch.export merges or can't trace, and names that it can't keep."""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Iterator, Sequence

import torch
from attrs import evolve
from torch.export import ExportedProgram
from torch.fx import Graph, GraphModule, Node
from torch.nn import Module

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


def reserved_names(method: Method) -> list[str]:
    """Return the names of weights that torch.fx's GraphModule uses for itself."""
    model = method.model
    if isinstance(model, ExportedProgram):
        names = [*model.state_dict, *model.constants]
    else:
        names = [name for name, _ in _named_weights(model)] if isinstance(model, Module) else []
    taken = GraphModule({}, Graph())
    return [name for name in names if hasattr(taken, name.partition(".")[0])]


def hold(method: Method, names: Sequence[str]) -> Method:
    """Make the model a part of another one, where its weights may have any name."""
    model = method.model
    if not isinstance(model, Module):
        raise ValueError(names[0])

    class Held(Module):
        """A model that calls its only part."""

        def __init__(self, part: Module) -> None:
            super().__init__()
            self.training, self.part = part.training, part

        def forward(self, *args: object, **kwargs: object) -> object:
            return self.part(*args, **kwargs)

    # torch.export reads the names of inputs from it.
    functools.update_wrapper(Held.forward, type(model).forward)
    return evolve(method, model=Held(model))


def _named_weights(model: Module) -> Iterator[tuple[str, torch.Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


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
RESERVED_NAMES = Quirk(
    name="reserved-names",
    stage=EXPORT,
    summary="A weight of the model itself can't be called like an attribute of torch.fx's "
    "GraphModule, such as meta, graph or code: torch makes one of the program when it decomposes "
    "it.",
    upstream="report written 2026-11-27; torch/export/_unlift.py, _unlift",
    find=reserved_names,
    fix=hold,
    refusal=Rejection(
        "has a weight called {found!r}, a name that torch's GraphModule uses",
        "rename the parameter, buffer or submodule, or give the module instead of the program",
        error=SourceError,
    ),
)
QUIRKS = (MERGED_INPUTS, IGNORED_INPUTS, RESERVED_NAMES)
