"""Child processes that judge repros: one on plain ExecuTorch, and one for each way into etdev."""

from __future__ import annotations

from support.processes import Process
from support.quirks.verdict import Verdict

# The functions that judge a repro by its name.
PLAIN = "support.quirks.plain:verdict"
LOWERER = "support.quirks.ours:by_lowerer"
PARTITIONER = "support.quirks.ours:by_partitioner"


class Judge(Process):
    """A process that judges one repro after the other with one of these functions."""

    def verdict(self, name: str) -> Verdict:
        """Judge one repro by its name."""
        verdict: Verdict = self.ask(name)
        return verdict
