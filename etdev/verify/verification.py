"""Result of a verification."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from attrs import frozen

from etdev.errors import NOT_VERIFIED, VerifyError
from etdev.schema.wording import counted

# The seed of what is drawn.
SEED = 0


@frozen
class Coverage:
    """The sizes, integers and branches that the calls of a method tried.

    Args:
        method: Its name.
        calls: The number of calls that agree.
        sizes: The sizes of each dynamic dimension, such as `x.shape[0]`.
        integers: The number of different values of each input of integers.
        branches: The sides of each `torch.cond` that were taken, by its place in the program.
        gaps: What was not tried.
    """

    method: str
    calls: int
    sizes: Mapping[str, tuple[int, ...]]
    integers: Mapping[str, int]
    branches: Mapping[str, tuple[bool, ...]]
    gaps: tuple[str, ...]


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
        coverage: What the calls of each verified method tried, and what they did not.
        seed: Of the drawn inputs.
    """

    calls: int
    tolerance: float
    unverified: tuple[str, ...]
    edges: tuple[EdgeCall, ...] = ()
    runners: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    coverage: tuple[Coverage, ...] = ()
    seed: int = SEED

    def __str__(self) -> str:
        return "; ".join(self.lines())

    def lines(self) -> Iterator[str]:
        """Say over how many calls it was verified and within which error, or why it was not."""
        within = f"within {self.tolerance:g} of the largest value" if self.tolerance else "exactly"
        problems: dict[tuple[str, str], list[str]] = {}
        for call in self.edges:
            if call.problem:
                problems.setdefault((call.method, call.problem), []).append(call.value)
        wrong = {value for values in problems.values() for value in values}
        right = dict.fromkeys(call.value for call in self.edges if call.value not in wrong)
        also = f", also at {', '.join(right)}" if right else ""
        places = f" in {', '.join(self.runners)}" if {*self.runners} - {"python"} else ""
        told = f"verified over {counted(self.calls, 'call')}{places} {within}{also}"
        several = len(self.coverage) > 1
        gaps = ((f"method {c.method!r}: " * several + gap) for c in self.coverage for gap in c.gaps)
        done = [told, *gaps] if self.calls else []
        yield "; ".join([*done, *(f"not verified: {text}" for text in self.unverified)])
        yield from self.remarks
        for (method, problem), values in problems.items():
            yield f"but at {', '.join(values)} method {method!r} differs from PyTorch: {problem}"

    def require(self, cure: str) -> None:
        """Reject a verification that left out a method or state."""
        if self.unverified:
            raise VerifyError(NOT_VERIFIED, "; ".join(self.unverified), cure)
