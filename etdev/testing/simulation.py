"""Simulation: a lowered method runs in Python, and simulators of backends run its delegates.

Simulators are for backends that ExecuTorch's runtime lacks; delegates of other backends run in
that runtime. Nodes outside of delegates run in eager PyTorch, so that a simulation does not test
portable kernels or ExecuTorch's emitter.
"""

from __future__ import annotations

import inspect
from collections import ChainMap
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

import torch
from attrs import define
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule

from etdev.edge.reference import duplicates, written
from etdev.errors import RunError
from etdev.lowered import Lowered
from etdev.runtime.run import execute
from etdev.testing.fakes import FAKE
from etdev.upstream.emission import content_of
from etdev.upstream.trees import flat

# Runs a payload: `simulate(payload, inputs)` returns its outputs. With an argument `data` it gets
# the delegate's named data, bytes by key, and with `compile_specs` the compile specs.
Simulator = Callable[..., Sequence[Any]]


@define(eq=False)
class Simulation:
    """A method whose delegates are simulated, with its state.

    Args:
        module: The method, split and compiled, with its state.
        simulators: Simulators by backend name.
    """

    module: torch.fx.GraphModule
    simulators: Mapping[str, Simulator]

    @classmethod
    def of(
        cls,
        lowered: Lowered,
        simulators: Mapping[str, Simulator] = MappingProxyType({}),
        method: str = "forward",
    ) -> Simulation:
        """Make a simulation of a lowered method."""
        program = lowered.edge.exported_program(method)
        copied: list[Any] = duplicates([program.module()], [dict.fromkeys(written(program))])
        return cls(copied[0], simulators)

    def __call__(self, *inputs: Any) -> list[Any]:
        """Call the method and return its outputs."""
        with torch.no_grad():
            values = flat(_Interpreter(self).run(*inputs))
        return [value.clone() if isinstance(value, torch.Tensor) else value for value in values]

    def call(self, module: LoweredBackendModule, inputs: Sequence[Any]) -> Sequence[Any]:
        """Call a delegate."""
        if module.backend_id == FAKE:
            # Its payload is always the same.
            outputs: Sequence[Any] = module.original_module.module()(*inputs)
            return outputs
        if simulate := self.simulators.get(module.backend_id):
            return simulate(bytes(module.processed_bytes), inputs, **_more(simulate, module))
        # Only here, since delegates that are all simulated need no runtime.
        from executorch.runtime import Runtime

        if not Runtime.get().backend_registry.is_available(module.backend_id):
            what = "this runtime does not have it, and no simulator is given"
            cure = f'give one: simulators={{"{module.backend_id}": simulate}}'
            raise RunError(module.backend_id, what, cure)
        # A program of its own has its named data.
        return execute(module.buffer(), inputs)


def named_data(module: LoweredBackendModule) -> dict[str, bytes]:
    """Return a delegate's named data, inside the .pte and outside, by key."""
    if (data := module.named_data_store_output) is None:
        return {}
    entries = ChainMap(data.pte_data, *data.external_data.values())
    return {key: content_of(data.buffers[entry.buffer_index]) for key, entry in entries.items()}


def _more(simulate: Simulator, module: LoweredBackendModule) -> dict[str, Any]:
    """Return the further arguments that a simulator has, by name."""
    specs = {spec.key: spec.value for spec in module.compile_specs}
    offered = {"data": named_data(module), "compile_specs": specs}
    names = inspect.signature(simulate).parameters
    return {name: value for name, value in offered.items() if name in names}


class _Interpreter(torch.fx.Interpreter):
    """An interpreter of a graph that has the simulation run its delegates."""

    def __init__(self, owner: Simulation) -> None:
        super().__init__(owner.module)
        self.owner = owner

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        module, *inputs = args
        return self.owner.call(module, inputs)
