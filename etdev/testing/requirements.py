"""Requirements that a plugin has to meet in the test kit."""

from __future__ import annotations

from attrs import fields, frozen


@frozen
class Requirements:
    """Requirements that a plugin has to meet; its report lists those below the defaults.

    Args:
        reasons: It gives a reason for every node that it doesn't claim.
        compiles: Its backend's compiler works on this machine.
        quick_probe: Its probe answers within a second.
        same_bytes: Its compiler gives the same bytes for the same partition.
        other_process: It can be sent to another process and plans there with another hash seed.
        tolerance: Largest error relative to the largest value of an output.
        dtypes: Dtypes of the inputs that values are compared for.
        special: NaN and infinities give the values of PyTorch.
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
        """The requirements below their defaults, such as `tolerance = 0.01`."""
        usual = Requirements()
        values = {field.name: getattr(self, field.name) for field in fields(Requirements)}
        if set(usual.dtypes) <= set(self.dtypes):
            del values["dtypes"]
        return tuple(f"{n} = {v}" for n, v in values.items() if v != getattr(usual, n))
