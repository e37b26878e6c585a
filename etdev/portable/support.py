"""The ops that portable kernels compute as PyTorch does, and how others are written in them."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from executorch.exir import EdgeCompileConfig
from executorch.exir.delegate import executorch_call_delegate
from torch.export import ExportedProgram
from torch.fx import GraphModule, Node

from etdev import Claim, Group, KeepWhole, Refusal
from etdev.graph import (
    aten_op,
    computed_from,
    op_name,
    own_pieces,
    pieces_of,
    unwritten_constants,
)
from etdev.portable.decompositions import DECOMPOSITIONS
from etdev.portable.soundness import Problem, problem_of
from etdev.upstream.edge import excepted

aten = torch.ops.aten
# Outside Core ATen.
_WITH_KERNELS = (
    aten.bitwise_left_shift.Tensor,
    aten.bitwise_left_shift.Tensor_Scalar,
    aten.bitwise_right_shift.Tensor,
    aten.bitwise_right_shift.Tensor_Scalar,
)
# Kernels of ExecuTorch's optimised library that are faster than those of the pieces.
_OPTIMISED = (aten.linear.default,)


def keep_whole(program: ExportedProgram, kernels: str) -> KeepWhole:
    """Return the ops outside Core ATen that have kernels, and those that are decomposed here.

    A layer whose weight constants decide is decomposed: its pieces are computed ahead of time. It
    stays whole if the constants take fewer bytes than the weight, since the file would grow.
    """
    decided = computed_from(program, unwritten_constants(program))

    def wanted(node: Node) -> bool:
        folded = any(s.name in decided and not _is_stored_in_less(s) for s in node.all_input_nodes)
        return node.target not in _OPTIMISED or not (folded or problem_of(node))

    ops = _WITH_KERNELS + (_OPTIMISED if kernels == "optimized" else ())
    return KeepWhole(ops, wanted, decomposes=tuple(DECOMPOSITIONS))


def _is_stored_in_less(value: Node) -> bool:
    """Return True if a value that constants decide takes more bytes than all that decides it."""
    seen, todo = {value}, [value]
    while todo:
        new = {source for source in todo.pop().all_input_nodes if source not in seen}
        seen |= new
        todo += new
    stored = [node.meta["val"] for node in seen if node.op == "placeholder"]
    return sum(each.nbytes for each in stored) < value.meta["val"].nbytes


class Support:
    """The judgement of nodes, one by one.

    Args:
        config: The caller's; it says which ops the caller's runtime has kernels for.
        kernels: The runtime's libraries of kernels.
    """

    def __init__(self, config: EdgeCompileConfig, kernels: str) -> None:
        self._others = excepted(config)
        self._lacking = () if kernels == "optimized" else _OPTIMISED

    def match(self, program: ExportedProgram, taken: Mapping[str, str]) -> Sequence[Claim]:
        """Return the claim on the nodes whose kernels are right, and one of last resort.

        Args:
            program: An edge-dialect program.
            taken: Owner of each node that another plugin has.
        """
        right: list[Group] = []
        rarely_wrong: list[Group] = []
        refusals: list[Refusal] = []
        for node in _computing(program.graph_module):
            if node.name in taken:
                continue
            problem = self._problem(node, program.graph_module)
            if problem is None:
                right.append(Group([node.name]))
            elif problem.rare:
                rarely_wrong.append(Group([node.name], problem.text))
            else:
                refusals.append(Refusal(node.name, problem.code, problem.text))
        last = [Claim(None, rarely_wrong, last_resort=True)] if rarely_wrong else []
        return [Claim(None, right, refusals), *last]

    def decomposition(self, node: Node) -> Callable[..., Any] | None:
        """Return how a node is written in ops that kernels compute; None if it is one of those."""
        problem = self._own_problem(node)
        if problem is not None and problem.formula is not None:
            return problem.formula
        return DECOMPOSITIONS.get(aten_op(node.target))

    def _problem(self, node: Node, module: GraphModule) -> Problem | None:
        """Return what is wrong with the kernel of a node, or with one in its branches."""
        problems = list(self._problems_inside(node, module))
        return next(
            (problem for problem in problems if not problem.rare), next(iter(problems), None)
        )

    def _problems_inside(self, node: Node, module: GraphModule) -> Iterator[Problem]:
        if problem := self._own_problem(node):
            yield problem
        held = (getattr(module, str(n.target)) for n in node.all_input_nodes if n.op == "get_attr")
        for branch in held:
            for inner in _computing(branch) if isinstance(branch, GraphModule) else ():
                for problem in self._problems_inside(inner, branch):
                    yield problem.within(inner)

    def _own_problem(self, node: Node) -> Problem | None:
        op = aten_op(node.target)
        # A decomposition that writes an op with the same op gives it what its kernel can do.
        if op in self._others or op_name(node) in pieces_of(node):
            return None
        if op in self._lacking:
            return Problem("no-kernel", "only ExecuTorch's optimised kernels compute it")
        if own_pieces(op) is not None:
            return Problem("no-kernel", "it is an op of another library, written in torch")
        return problem_of(node)


def _computing(module: GraphModule) -> Iterator[Node]:
    """Yield the nodes that kernels compute; getitems go with their op."""
    for node in module.graph.nodes:
        if node.op == "call_function" and node.target not in _NOT_COMPUTED:
            yield node


_NOT_COMPUTED = (operator.getitem, executorch_call_delegate)
