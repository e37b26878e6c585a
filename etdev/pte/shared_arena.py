"""The arena for state that methods share, planned beside each method's own memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from attrs import define, field
from executorch.exir.tensor import ALIGNMENT, TensorSpec
from torch.export import ExportGraphSignature
from torch.fx import GraphModule

from etdev.errors import LoweringError, warn_or_raise
from etdev.schema.plan import Plan
from etdev.schema.tensors import SharedState
from etdev.schema.wording import listed

# The only arenas that ExecuTorch's loaders share are 1, for intermediate values, and 2.
_ARENA = 2
# Delegates may read some bytes behind an input; ExecuTorch pads inputs for them, too.
_PADDING = 64
SIZES, _DEVICES = "non_const_buffer_sizes", "non_const_buffer_device"


@define(eq=False)
class SharedArena:
    """An arena with all state of all methods, in which shared buffers have one place.

    Loaders that share it share the arena for intermediate values, too, where a buffer of one method
    would be overwritten by another method.

    Args:
        states: The buffers that are shared; without any, nothing is planned here.
    """

    states: Sequence[SharedState]
    _places: dict[tuple[str, str], int] = field(factory=dict, init=False)
    _size: int = field(default=0, init=False)
    _modules: list[GraphModule] = field(factory=list, init=False)

    def planner(self, memory: Any, method: str) -> Any:
        """Change a copied memory planning pass so that it leaves state to this arena."""
        if not self.states:
            return memory
        if not hasattr(memory, "run"):
            what = f"the memory planning pass of {method!r} has no `run`, so state can't be shared"
            raise LoweringError("to_executorch", what, "derive it from MemoryPlanningPass")
        run = memory.run
        memory.alloc_mutable_buffers, memory.share_mutable_buffers = False, False

        def planned(module: GraphModule, signature: ExportGraphSignature) -> Any:
            result = run(module, signature)
            self._plan(result.graph_module, signature, method)
            return result

        memory.run, memory.run_multimethod = planned, self._finish
        return memory

    def _plan(self, module: GraphModule, signature: ExportGraphSignature, method: str) -> None:
        sizes = module.meta[SIZES]
        if len(sizes) > _ARENA:
            where = "other devices" if module.meta.get(_DEVICES) else "arenas of its own"
            raise _unshareable(self.states, method, where)
        written = set(signature.buffers_to_mutate.values())
        for node in module.graph.find_nodes(op="placeholder"):
            target = signature.inputs_to_buffers.get(node.name)
            if target not in written:
                continue
            spec: TensorSpec = node.meta["spec"]
            spec.mem_id, spec.mem_offset = _ARENA, self._place(method, str(target), spec)
        sizes.append(0)
        self._modules.append(module)

    def _place(self, method: str, target: str, spec: TensorSpec) -> int:
        """Return the offset of a buffer, which methods that share it have in common."""
        if (method, target) not in self._places:
            known = (own for state in self.states for own in (state.targets, state.flags))
            owners = next((own for own in known if own.get(method) == target), {method: target})
            self._places.update(dict.fromkeys(owners.items(), self._size))
            spec.realign(ALIGNMENT)
            self._size += spec.allocated_memory
        return self._places[method, target]

    def _finish(self) -> None:
        """Write the size into all methods; ExecuTorch calls it once for each method's pass."""
        for module in self._modules:
            module.meta[SIZES][_ARENA] = self._size + _PADDING


def warn_of_devices(plan: Plan, strict: bool) -> None:
    """Say before anything is compiled that emission will refuse a plan as it is by default.

    Raises:
        LoweringError: Under `strict`.
    """
    states = [state for state in plan.state if state.shared]
    sharing = {method for state in states for method in state.targets}
    for own in plan.methods:
        away = {str(each.device): None for each in own.partitions if not each.device.is_cpu}
        if away and own.method in sharing:
            warn_or_raise(_unshareable(states, own.method, " and ".join(away)), strict)
            return


def _unshareable(states: Sequence[SharedState], method: str, where: str) -> LoweringError:
    return LoweringError(
        "to_executorch",
        f"methods share state, {listed([str(state) for state in states], 3)}, and {method!r} has "
        f"memory on {where}, which no loader of ExecuTorch can share",
        "leave out the plugin that needs it, plan memory without devices with "
        "ExecutorchBackendConfig(enable_non_cpu_memory_planning=False), or give each method its "
        "own state with share_state=False, or --no-share-state",
    )
