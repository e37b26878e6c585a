"""ExportedPrograms made by hand around a graph.

Its constructor checks little, so these are the rules that ExecuTorch relies on:

- The signature has a spec for each placeholder, in the order of the graph: parameters, buffers and
  lifted constants before the inputs of the user. It has one for each result, writes to buffers
  first. Specs name nodes, and `signature.argument` makes them.
- Parameters and buffers are in the state dict, or in the constants if they are not saved with it,
  under the target of their spec. A constant without a spec would be stored all the same.
- All symbolic sizes have their range, or memory planning has no upper bound.
- The entry for "" in the module call graph has the nesting of inputs and outputs, which
  `ExportedProgram.module` and ExecuTorch's conversion need. ExecuTorch writes it into the .pte, and
  its runtime takes and returns flat values all the same.
- The verifier stands for the dialect; the constructor runs it over the whole graph.
"""

from __future__ import annotations

import copy
import dataclasses
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.exported_program import ModuleCallEntry, ModuleCallSignature
from torch.export.graph_signature import ExportGraphSignature, OutputSpec
from torch.fx import Graph, GraphModule, Node
from torch.nn import Module

from etdev.graph.signature import fitted
from etdev.upstream.edge import with_parts
from etdev.upstream.shortcuts.graphs import graph_module, interpreted_graph
from etdev.upstream.trees import pytree

_SIMPLIFIED = "etdev_simplified"


def copy_graph(graph: Graph, copied: Graph | None = None) -> Graph:
    """Copy a graph, to an empty one if given; torch's own copy would rename a node `input`."""
    copied = Graph() if copied is None else copied
    copies: dict[Node, Node] = {}
    for node in graph.nodes:
        copies[node] = copied.node_copy(node, copies.__getitem__)
        # The signature names it, and Python has a function of that name.
        copies[node].name = node.name
    return copied


def interpreted_copy(program: ExportedProgram) -> ExportedProgram:
    """Return a program for a compiler that walks and changes graphs and never runs them.

    Weights have the names of their inputs if one of them has a name that Python can't write, such
    as `0.weight`: passes name new inputs after weights, and torch.fx would change those names.
    ExecuTorch 1.4 then fails to fuse a batch norm, for one.

    The copy has the same weights, in dicts and a signature of its own.
    """
    graph, signature = copy_graph(program.graph, interpreted_graph()), program.graph_signature
    names = {spec.target: spec.arg.name for spec in signature.input_specs if spec.target}
    if all(target.replace(".", "_").isidentifier() for target in names):
        names = {}
    specs = [
        [dataclasses.replace(spec, target=names.get(spec.target, spec.target)) for spec in side]
        for side in (signature.input_specs, signature.output_specs)
    ]
    own = {
        part: {names.get(name, name): value for name, value in getattr(program, part).items()}
        for part in ("state_dict", "constants")
    }
    return rebuilt(with_parts(program, **own), graph, ExportGraphSignature(*specs))


def with_own_graphs(program: ExportedProgram) -> ExportedProgram:
    """Copy a program whose graph and branches may be changed; it shares weights and symbols."""
    copied = rebuilt(program, copy_graph(program.graph))
    for name, branch in list(copied.graph_module.named_children()):
        if isinstance(branch, GraphModule):
            setattr(copied.graph_module, name, copy.deepcopy(branch))
    return copied


def with_changed(
    program: ExportedProgram, found: Sequence[Node], change: Callable[[Node], None]
) -> ExportedProgram:
    """Change some nodes in a copy of a program, also in the graphs of control flow.

    `change` is given each node of the copy; calls that it makes come before the node.
    """
    copied = with_own_graphs(program)
    modules = dict(copied.graph_module.named_modules())
    copies: dict[Node, Node] = {}
    for name, module in program.graph_module.named_modules():
        own = modules.get(name)
        # A branch that nothing calls any more is not copied.
        if isinstance(module, GraphModule) and isinstance(own, GraphModule):
            copies.update(zip(module.graph.nodes, own.graph.nodes, strict=True))
    for node in (copies[each] for each in found if each in copies):
        with node.graph.inserting_before(node):
            change(node)
    for module in modules.values():
        if isinstance(module, GraphModule):
            module.recompile()
    return copied


def without_inputs(
    program: ExportedProgram,
    graph: Graph,
    names: Collection[str],
    outputs: Sequence[OutputSpec] | None = None,
) -> ExportedProgram:
    """Make a program of a graph without some inputs that nothing reads; the graph is changed."""
    for node in graph.find_nodes(op="placeholder"):
        if node.name in names:
            graph.erase_node(node)
    before = program.graph_signature
    outputs = before.output_specs if outputs is None else outputs
    signature = fitted(ExportGraphSignature(before.input_specs, list(outputs)), graph)
    return rebuilt(program, graph, signature)


def constant_input(name: str, value: torch.Tensor, near: Node) -> Node:
    """Return a new input for a constant, where the graph of a node inserts."""
    node: Node = near.graph.placeholder(name)
    # The emitter looks for it under this name, which another node may have had.
    node.target = node.name
    node.meta = {"val": fake_like(value, near)}
    return node


def fake_like(value: torch.Tensor, near: Node) -> torch.Tensor:
    """Return a tensor without values on the CPU, in the fake mode of a node's value."""
    with near.meta["val"].fake_mode:
        return torch.empty_like(value, device="cpu")


def rebuilt(
    program: ExportedProgram,
    graph: Graph,
    signature: ExportGraphSignature | None = None,
    root: Module | dict[str, Any] | None = None,
    constants: Mapping[str, Any] | None = None,
) -> ExportedProgram:
    """Make a program of the same method with another graph, which belongs to it from now on.

    The caller's side stays: how inputs and outputs are nested, the example inputs, the dialect.
    Weights that no input names any more are left out. The program before is not changed.
    `root` has what the graph's get_attrs read; by default it is the graph module of the program
    before. `constants` are those that the program before didn't have, by target.
    """
    if signature is None:
        signature = fitted(program.graph_signature, graph, constants or ())
    targets = {spec.target for spec in signature.input_specs}
    copied = ExportedProgram(
        root=program.graph_module if root is None else root,
        graph=graph,
        graph_signature=signature,
        state_dict={name: value for name, value in program.state_dict.items() if name in targets},
        range_constraints=dict(program.range_constraints),
        module_call_graph=list(program.module_call_graph),
        example_inputs=program.example_inputs,
        constants={
            name: value
            for name, value in {**program.constants, **(constants or {})}.items()
            if name in targets or not isinstance(value, torch.Tensor)
        },
        verifiers=[program.verifier],
    )
    copied.graph_module.meta.update(program.graph_module.meta)
    return copied


def note_simplified(program: ExportedProgram, counts: Counter[str]) -> None:
    """Write down how many nodes of a program were simplified, by kind; the plan repeats it."""
    program.graph_module.meta[_SIMPLIFIED] = counts


def simplified_in(program: ExportedProgram) -> Counter[str]:
    """Return how many nodes of a program were simplified, by kind."""
    return Counter(program.graph_module.meta.get(_SIMPLIFIED))


def extracted(
    owner: ExportedProgram,
    graph: Graph,
    signature: ExportGraphSignature,
    root: dict[str, Any],
    verifier: type[Any] | None = None,
) -> ExportedProgram:
    """Make a program with flat inputs and outputs of some nodes of the method of another program.

    It has the weights that its signature names, shared with the method unless they are views of
    something larger. With a verifier, which is only noted, the nodes are those of a verified
    program; without one, torch verifies them as an ATen program.
    """
    targets = [spec.target for spec in signature.input_specs if spec.target is not None]
    _, in_spec = pytree.tree_flatten((tuple(signature.user_inputs), {}))
    _, out_spec = pytree.tree_flatten(signature.user_outputs)
    call = ModuleCallSignature(inputs=[], outputs=[], in_spec=in_spec, out_spec=out_spec)
    parts: dict[str, Any] = {
        "graph_signature": signature,
        "state_dict": {n: _whole(owner.state_dict[n]) for n in targets if n in owner.state_dict},
        "range_constraints": dict(owner.range_constraints),
        "module_call_graph": [ModuleCallEntry("", call)],
        "constants": {n: _whole(owner.constants[n]) for n in targets if n in owner.constants},
    }
    if verifier is None:
        return ExportedProgram(root, graph, **parts)
    parts |= {"graph_module": graph_module(root, graph), "verifiers": [verifier]}
    return with_parts(owner, example_inputs=None, **parts)


def _whole(value: Any) -> Any:
    """Return a tensor with a storage that holds nothing else.

    Some backends write storage to the .pte from its first byte on.
    """
    if not isinstance(value, torch.Tensor) or value.layout is not torch.strided:
        return value
    if value.untyped_storage().nbytes() == value.nbytes:
        return value
    whole = value.detach().clone()
    return torch.nn.Parameter(whole, False) if isinstance(value, torch.nn.Parameter) else whole
