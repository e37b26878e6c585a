"""ExecuTorch's conversion to the edge dialect: its steps, settings, manager and errors."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from types import FunctionType
from typing import Any

from executorch.exir import EdgeCompileConfig, EdgeProgramManager
from executorch.exir.program import _program
from torch.export import ExportedProgram
from torch.fx import GraphModule
from torch.fx.passes.infra.pass_base import PassResult

from etdev.errors import EtdevError, LoweringError, first_line
from etdev.upstream.operators import OpOverload

Pass = Callable[[GraphModule], PassResult]
_PASSES = "_get_aten_to_edge_passes"


def edge_conversion(wrap: Callable[[Pass], Pass]) -> Callable[..., ExportedProgram]:
    """Return ExecuTorch's function that converts a decomposed program, with other passes.

    It takes a config, the program and `preserve_ops`. ExecuTorch's own function has no argument
    for its passes, so this is a copy of it that finds other ones under their name: `wrap` is given
    each pass over ATen ops, and returns the pass that runs in its place.
    """
    convert: Callable[..., ExportedProgram] = _program._generate_edge_program
    if not isinstance(convert, FunctionType) or _PASSES not in convert.__code__.co_names:
        return convert

    def passes(config: EdgeCompileConfig) -> tuple[list[Pass], Sequence[Pass]]:
        before, after = getattr(_program, _PASSES)(config)
        return [wrap(step) for step in before], after

    names = {**convert.__globals__, _PASSES: passes}
    copied = FunctionType(
        convert.__code__, names, convert.__name__, convert.__defaults__, convert.__closure__
    )
    copied.__kwdefaults__ = convert.__kwdefaults__
    return copied


def guarded(
    stage: str, call: Callable[[], Any], name_cause: Callable[[Exception], None] | None = None
) -> Any:
    """Call a function of ExecuTorch; its errors become a LoweringError that names the stage.

    `name_cause` is given the error, and raises a more specific one if it can.
    """
    try:
        return call()
    except EtdevError:
        raise
    except Exception as error:
        if name_cause:
            name_cause(error)
        raise LoweringError(
            stage, f"ExecuTorch failed with {first_line(error)}", "the cause is chained below"
        ) from error


def lift_constants(program: ExportedProgram) -> None:
    """Make inputs of a program of the constants that passes left in its graph, in place."""
    _program.lift_constant_tensor_pass(program)


def without_dim_order() -> EdgeCompileConfig:
    """Return settings with which ExecuTorch keeps ATen's copies, without the order of dimensions.

    Programs converted so can be written in ATen again.
    """
    return EdgeCompileConfig(_skip_dim_order=True)


def verifies(config: EdgeCompileConfig) -> bool:
    """Return True if ExecuTorch verifies programs that it converts with these settings."""
    return bool(config._check_ir_validity)


def unverified(config: EdgeCompileConfig) -> EdgeCompileConfig:
    """Return a copy of settings with which ExecuTorch doesn't verify programs."""
    changed = copy.copy(config)
    changed._check_ir_validity = False
    return changed


def excepted(config: EdgeCompileConfig) -> list[OpOverload]:
    """Return the ops outside Core ATen that settings allow."""
    return list(config._core_aten_ops_exception_list)


def excepting(config: EdgeCompileConfig, ops: Iterable[OpOverload]) -> EdgeCompileConfig:
    """Return a copy of settings that allow exactly these ops outside Core ATen."""
    changed = copy.copy(config)
    changed._core_aten_ops_exception_list = list(ops)
    return changed


def set_program(manager: EdgeProgramManager, method: str, program: ExportedProgram) -> None:
    """Replace the program of a method, in place."""
    manager._edge_programs[method] = program


def start_etrecord(manager: EdgeProgramManager, programs: Mapping[str, ExportedProgram]) -> None:
    """Give a manager a record of its programs and of those that they were converted from."""
    manager._etrecord = record = _program._create_empty_etrecord()
    record.add_exported_program(dict(programs))
    record.add_edge_dialect_program(copy.deepcopy(manager))


def etrecord(manager: EdgeProgramManager) -> Any:
    """Return the record for ExecuTorch's developer tools that a manager carries, or None."""
    return manager._etrecord


def set_etrecord(manager: EdgeProgramManager, record: Any) -> None:
    """Have a manager carry a record, which `to_executorch` completes."""
    manager._etrecord = record
