"""Weights that a .pte takes from the model when it is emitted, after delegates took theirs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen
from torch.export import ExportedProgram

from etdev.errors import LoweringError
from etdev.graph.signature import unwritten_constants
from etdev.graph.tensor_state import TensorWas
from etdev.schema.plan import MethodPlan, Plan


@frozen(eq=False)
class Weights:
    """The weights outside of delegates, as they were when the delegates were compiled.

    Args:
        tensors: The weights by method and name in the state dict.
    """

    tensors: Mapping[tuple[str, str], TensorWas]

    @classmethod
    def of(cls, programs: Mapping[str, ExportedProgram], plan: Plan) -> Weights:
        """Record the weights of the edge-dialect programs that a plan is for."""
        tensors = {}
        for method, program in programs.items():
            values = {**program.constants, **program.state_dict}
            for target in _outside(program, plan[method]):
                tensors[method, target] = TensorWas.of(values[target])
        return cls(tensors)

    def refuse_changes(self) -> None:
        """Refuse to emit weights that were changed since delegates took theirs.

        Raises:
            LoweringError: A weight has been written to since.
        """
        for (method, target), was in self.tensors.items():
            if not was.is_still(was.value):
                raise LoweringError(
                    method,
                    f"{target!r} was changed after the model was lowered",
                    "lower it again, or change a copy of the model",
                )


def _outside(program: ExportedProgram, plan: MethodPlan) -> Iterator[str]:
    """Yield the targets of the weights that are read outside of delegates that hold them."""
    inside: dict[str, set[str]] = {}
    for partition in plan.partitions:
        for constant in partition.constants:
            if constant.inside:
                inside.setdefault(constant.name, set()).update(partition.nodes)
    targets = unwritten_constants(program)
    for node in program.graph.find_nodes(op="placeholder"):
        readers = {user.name for user in node.users}
        if node.name in targets and readers - inside.get(node.name, set()):
            yield targets[node.name]
