"""Outputs: what ExecuTorch's runtime can return."""

from __future__ import annotations

from torch.export import ExportedProgram
from torch.export.graph_signature import (
    ConstantArgument,
    CustomObjArgument,
    OutputKind,
    OutputSpec,
    TensorArgument,
    TokenArgument,
)

from etdev.errors import LoweringError


def refuse_outputs(method: str, program: ExportedProgram) -> None:
    """Refuse outputs that ExecuTorch can't write into a .pte.

    Raises:
        LoweringError: There is one, or there is not one tensor among them.
    """
    specs = program.graph_signature.output_specs
    for index, spec in enumerate(_returned(program)):
        if isinstance(spec.arg, ConstantArgument) and isinstance(spec.arg.value, str):
            raise LoweringError(
                "edge conversion",
                f"output {index} of method {method!r} is the string {spec.arg.value!r}, which "
                "ExecuTorch's runtime can't return",
                "leave it out of what the method returns",
            )
    # The new value of a buffer is one, too.
    if not any(isinstance(spec.arg, TensorArgument) for spec in specs):
        said = ", ".join(map(_said, _returned(program))) or "nothing"
        raise LoweringError(
            "edge conversion",
            f"method {method!r} returns {said}, and ExecuTorch plans memory only for methods that "
            "return or keep a tensor",
            "return a tensor, such as x.argmax() instead of x.argmax().item()",
        )


def _returned(program: ExportedProgram) -> list[OutputSpec]:
    specs = program.graph_signature.output_specs
    return [spec for spec in specs if spec.kind == OutputKind.USER_OUTPUT]


def _said(spec: OutputSpec) -> str:
    argument = spec.arg
    if isinstance(argument, ConstantArgument):
        return repr(argument.value)
    if isinstance(argument, (TensorArgument, TokenArgument, CustomObjArgument)):
        return argument.name
    return f"the number {argument.name!r}"
