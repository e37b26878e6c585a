"""Result of a verification."""

from __future__ import annotations

from attrs import frozen

from etdev.errors import VerifyError


@frozen
class EdgeCall:
    """A call with `nan`, `inf` or another edge value among its inputs, or with a size of 0.

    Args:
        problem: How it departs from eager PyTorch; empty if it agrees.
    """

    method: str
    value: str
    problem: str = ""


@frozen
class Verification:
    """Result of a verification.

    Args:
        calls: Number of calls that agree with eager PyTorch, over all methods.
        tolerance: The largest relative error that any method was allowed.
        unverified: The methods and the state that were not verified, and why:
            `method 'forward': it draws random numbers`.
        edges: The calls at edge values, which are not among `calls`.
        runners: The runners that made the calls.
        remarks: What was not compared with eager PyTorch's own results, and why.
    """

    calls: int
    tolerance: float
    unverified: tuple[str, ...]
    edges: tuple[EdgeCall, ...] = ()
    runners: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()

    def require(self, cure: str) -> None:
        """Reject a verification that left out a method or state."""
        if self.unverified:
            raise VerifyError("not verified", "; ".join(self.unverified), cure)
