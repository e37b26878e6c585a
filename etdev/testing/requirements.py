"""Requirements: what the kit may ask of a plugin."""

from __future__ import annotations

from attrs import fields, frozen


@frozen
class Requirements:
    """What the kit may ask of a plugin; whatever differs from these defaults is in its report.

    Args:
        reasons: It says of every node that it doesn't claim why.
        compiles: Its backend's compiler works on this machine.
        quick_probe: Its probe answers within a second.
        same_bytes: Its compiler gives the same bytes for the same partition.
        other_process: It can be sent to another process, to be asked there under another hash seed.
        tolerance: Largest error relative to the largest value of an output.
        dtypes: Of the inputs that values are compared in.
        special: NaN and infinities come out as in PyTorch.
    """

    reasons: bool = True
    compiles: bool = True
    quick_probe: bool = True
    same_bytes: bool = True
    other_process: bool = True
    tolerance: float = 1e-5
    dtypes: tuple[str, ...] = ("float32", "float16", "int32", "int64")
    special: bool = True

    @property
    def opt_outs(self) -> tuple[str, ...]:
        """What is asked otherwise than by default, but for more: `tolerance = 0.01`."""
        usual = Requirements()
        values = {field.name: getattr(self, field.name) for field in fields(Requirements)}
        if set(usual.dtypes) <= set(self.dtypes):
            del values["dtypes"]
        return tuple(f"{n} = {v}" for n, v in values.items() if v != getattr(usual, n))
