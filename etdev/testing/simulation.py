"""Simulation: a lowered method runs in Python, its delegates through simulators of their backends.

For backends that ExecuTorch's runtime on this machine does not have; delegates of those that it has
run there, beside the simulated ones. The nodes outside of delegates run in eager PyTorch, so that
nothing here tests portable kernels or ExecuTorch's emitter.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import torch
from attrs import define
from executorch.exir.delegate import executorch_call_delegate
from executorch.exir.lowered_backend_module import LoweredBackendModule
from executorch.runtime import Runtime
from torch.export import ExportedProgram
from torch.export.graph_signature import InputKind, OutputKind

from etdev.errors import RunError
from etdev.lowering.lowered import Lowered
from etdev.runtime.run import execute
from etdev.testing.fakes import FAKE

if TYPE_CHECKING:
    from typing_extensions import Self

# Computes what a payload says, of its inputs: `simulate(payload, inputs)`. One with an argument
# `data` is given the delegate's named data, bytes by key, and one with `compile_specs` those.
Simulator = Callable[..., Sequence[Any]]


@define(eq=False)
class Simulation:
    """A method whose delegates are simulated; its state lives from call to call.

    Args:
        program: The method, split and compiled.
        state: Values of its parameters, buffers and lifted tensors.
        simulators: By the name of a backend.
    """

    program: ExportedProgram
    state: dict[str, torch.Tensor]
    simulators: Mapping[str, Simulator]

    @classmethod
    def of(
        cls,
        lowered: Lowered,
        simulators: Mapping[str, Simulator] = MappingProxyType({}),
        method: str = "forward",
    ) -> Self:
        """A method as it was lowered."""
        program = lowered.edge.exported_program(method)
        held = {**program.constants, **program.state_dict}
        tensors = {key: v for key, v in held.items() if isinstance(v, torch.Tensor)}
        state = {key: value.detach().clone() for key, value in tensors.items()}
        return cls(program, state, simulators)

    def __call__(self, *inputs: Any) -> list[Any]:
        """What the method returns for these inputs."""
        signature, rest = self.program.graph_signature, iter(inputs)
        arguments = [
            next(rest) if spec.kind == InputKind.USER_INPUT else self.state[str(spec.target)]
            for spec in signature.input_specs
        ]
        with torch.no_grad():
            values = _Interpreter(self).run(*arguments, enable_io_processing=False)
        returned = []
        for spec, value in zip(signature.output_specs, values, strict=True):
            if spec.kind == OutputKind.BUFFER_MUTATION:
                self.state[str(spec.target)] = value.clone()
            else:
                returned.append(value.clone() if isinstance(value, torch.Tensor) else value)
        return returned

    def call(self, module: LoweredBackendModule, inputs: Sequence[Any]) -> Sequence[Any]:
        """Call a delegate.

        Raises:
            RunError: It has no simulator, and ExecuTorch's runtime does not have its backend.
        """
        if module.backend_id == FAKE:
            # Its bytes say nothing.
            outputs: Sequence[Any] = module.original_module.module()(*inputs)
            return outputs
        if simulate := self.simulators.get(module.backend_id):
            return simulate(bytes(module.processed_bytes), inputs, **_more(simulate, module))
        if not Runtime.get().backend_registry.is_available(module.backend_id):
            what = "this runtime does not have it, and no simulator is given"
            cure = f'give one: simulators={{"{module.backend_id}": simulate}}'
            raise RunError(module.backend_id, what, cure)
        # As a program of its own, which has its named data.
        return execute(module.buffer(), inputs)


def named_data(module: LoweredBackendModule) -> dict[str, bytes]:
    """What a delegate has in ExecuTorch's named data, inside the .pte and outside, by key."""
    if (data := module.named_data_store_output) is None:
        return {}
    entries = dict(data.pte_data)
    for external in data.external_data.values():
        entries |= external
    return {key: _bytes(data.buffers[entry.buffer_index]) for key, entry in entries.items()}


def _bytes(data: Any) -> bytes:
    # Weights are files while they are lowered.
    return bytes(data) if isinstance(data, (bytes, bytearray)) else data.prefix(len(data))


def _more(simulate: Simulator, module: LoweredBackendModule) -> dict[str, Any]:
    """What a simulator asks for by the names of its arguments, beside payload and inputs."""
    specs = {spec.key: spec.value for spec in module.compile_specs}
    offered = {"data": named_data(module), "compile_specs": specs}
    names = inspect.signature(simulate).parameters
    return {name: value for name, value in offered.items() if name in names}


class _Interpreter(torch.fx.Interpreter):
    """Runs a graph, and gives its delegates to the simulation."""

    def __init__(self, owner: Simulation) -> None:
        super().__init__(owner.program.graph_module)
        self.owner = owner

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if target is not executorch_call_delegate:
            return super().call_function(target, args, kwargs)
        module, *inputs = args
        return self.owner.call(module, inputs)
