"""Faults of other projects, and the releases that have them."""

from __future__ import annotations

from collections.abc import Iterable

from attrs import field, frozen

from etdev.schema.releases import Release


def _release(given: Release | str | None) -> Release | None:
    return Release.parse(given) if given and isinstance(given, str) else given or None


def _as_names(given: Iterable[str]) -> frozenset[str]:
    return frozenset(given)


@frozen(eq=False, kw_only=True)
class Fault:
    """A fault of another project: where it is, and which releases have it.

    Args:
        upstream: The issue or pull request, such as `pytorch/executorch#8030`, the day on which a
            report was written, or the release that it was seen with; and the file and the function
            at fault: `report written 2026-11-27; executorch/exir/tensor.py, from_tensor`.
        since: The first release with the fault, such as `torch 2.13`. Empty: no release is known
            to be without it.
        fixed: The first release without it, such as `executorch 1.6`. Empty: none is known to be
            right. A source build such as `1.6.0a0+gabc` comes before its release.
    """

    upstream: str
    since: Release | None = field(default=None, converter=_release)
    fixed: Release | None = field(default=None, converter=_release)

    @property
    def is_present(self) -> bool:
        """Return True unless the installed release is known to be without the fault."""
        # A source build may have the faults of its release.
        is_older = self.since is not None and not self.since.is_reached(by_source=True)
        return not (is_older or (self.fixed is not None and self.fixed.is_reached()))


@frozen(eq=False)
class FaultyOps(Fault):
    """Ops that another project gets wrong: `in` is true of them while the fault is there.

    Args:
        ops: Their names.
    """

    ops: frozenset[str] = field(converter=_as_names)

    def __contains__(self, op: object) -> bool:
        return op in self.ops and self.is_present
