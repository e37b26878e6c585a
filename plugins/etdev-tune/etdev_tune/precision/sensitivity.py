"""Errors of a model by the scheme of one layer, simulated in PyTorch."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch
from attrs import evolve
from torch import nn
from torch.export import ExportedProgram

from etdev_tune.cases import Case, error_of
from etdev_tune.precision import static
from etdev_tune.precision.application import unlifted
from etdev_tune.precision.layers import Layer, clean, layers_of, replace
from etdev_tune.precision.schemes import Scheme
from etdev_tune.report import Sensitivity

# At most this many calls are simulated.
_CALLS = 8


class _Switch(nn.Module):
    """A module as it was, and in a scheme."""

    def __init__(self, plain: nn.Module, quantised: Callable[[torch.Tensor], Any]) -> None:
        super().__init__()
        self.plain, self.quantised, self.on = plain, quantised, False

    def forward(self, x: torch.Tensor) -> Any:
        return (self.quantised if self.on else self.plain)(x)


def _rounding(observer: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a quantiser and a dequantiser of one value, with the scales of its observer."""
    scale, zero = observer.calculate_qparams()
    given = scale, zero.to(torch.int32)
    bounds = observer.quant_min, observer.quant_max
    if scale.numel() == 1:
        return lambda x: torch.fake_quantize_per_tensor_affine(x, *given, *bounds)
    return lambda x: torch.fake_quantize_per_channel_affine(x, *given, observer.ch_axis, *bounds)


class Simulation:
    """A method in which layers can be given a scheme.

    Args:
        program: The exported method.
        scheme: The scheme.
        case: Calls to calibrate on.

    Attributes:
        layers: Names of the layers that the scheme takes.
        scales: The scales that a static scheme's calibration found, by value.
    """

    def __init__(self, program: ExportedProgram, scheme: Scheme, case: Case) -> None:
        self.program, self.module = program, unlifted(program)
        self.scales: dict[str, tuple[float, int]] = {}
        self._switches: list[tuple[frozenset[str], _Switch]] = []
        self._state = {name: value.clone() for name, value in self.module.named_buffers()}
        known = layers_of(self.module)
        self._round(list(known), scheme, case) if scheme.is_static else self._replace(known, scheme)
        taken = frozenset[str]().union(*(own for own, _ in self._switches))
        self.layers = [name for name in known if name in taken]

    def error(self, case: Case, layers: Collection[str]) -> float:
        """Return the error of calls if these layers have the scheme, and no others."""
        for own, switch in self._switches:
            switch.on = not own.isdisjoint(layers)
        return error_of(case, self._outputs(case))

    def _replace(self, layers: Mapping[str, Layer], scheme: Scheme) -> None:
        """Switch modules, as torchao replaces them."""
        for layer in layers.values():

            def made(plain: nn.Module, name: str = layer.name) -> nn.Module:
                assert scheme.made
                self._switches.append((frozenset((name,)), _Switch(plain, scheme.made(plain))))
                return self._switches[-1][1]

            if not scheme.problem(layer):
                replace(self.module, layer, made)
        clean(self.module)

    def _round(self, layers: Sequence[str], scheme: Scheme, case: Case) -> None:
        """Calibrate, and switch the rounding of values where PT2E quantises them."""
        chosen = dict.fromkeys(layers, scheme.name)
        self.module, observers = static.prepared(self.module, chosen, {scheme.name: scheme})
        static.observe_weights(self.module, observers)
        self._outputs(case)
        self.scales = static.scales_of(observers)
        taken = frozenset[str]().union(*(o.layers for o in observers if o.is_weight))
        for observer in observers:
            switch = _Switch(nn.Identity(), _rounding(observer.module))
            self.module.set_submodule(str(observer.node.target), switch)
            self._switches.append((observer.layers & taken, switch))

    def _outputs(self, case: Case) -> list[list[Any]]:
        """Return the flat outputs of consecutive calls."""
        found, spec = [], self.program.call_spec
        with torch.no_grad():
            for call in case.calls:
                arguments, keywords = spec.in_spec.unflatten(list(call.inputs))
                leaves = spec.out_spec.flatten_up_to(self.module(*arguments, **keywords))
                found.append([leaf for leaf in leaves if leaf is not None])
            # The program, which shares its state, stays as it was.
            for name, value in self.module.named_buffers():
                if name in self._state:
                    value.copy_(self._state[name])
        return found


def sensitivities(
    simulation: Simulation, case: Case, scheme: str, seconds: float
) -> list[Sensitivity]:
    """Return the errors of each layer alone, and of all others without it, the worst layers first.

    If the time is too short for every layer, groups of consecutive ones are simulated, whose layers
    share the error. An error of the others without a layer is None if no time is left for it.

    Args:
        simulation: A method in the scheme.
        case: Calls in eager PyTorch.
        scheme: Name of the scheme.
        seconds: About how long it may take.
    """
    every, start = simulation.layers, time.monotonic()
    simulation.error(evolve(case, calls=case.calls[:1]), every[:1])
    affordable = seconds / 2 / max(time.monotonic() - start, 1e-6)
    count = max(1, len(every))
    some = evolve(case, calls=case.calls[: max(1, min(_CALLS, int(affordable / count)))])
    size = math.ceil(count / max(1, affordable))
    groups = [every[i : i + size] for i in range(0, len(every), size)]
    alone = [(simulation.error(some, own) / math.sqrt(len(own)), own) for own in groups]
    found = []
    for error, own in sorted(alone, reverse=True):
        rest = [name for name in every if name not in own]
        without = None if time.monotonic() - start > seconds else simulation.error(some, rest)
        found += [Sensitivity(layer, scheme, error, without) for layer in own]
    return found


def predicted(errors: Mapping[tuple[str, str], float], layers: Mapping[str, str]) -> float:
    """Return the error of a recipe, if the errors of its layers are independent of each other."""
    return math.sqrt(sum(errors.get(item, 0.0) ** 2 for item in layers.items()))
