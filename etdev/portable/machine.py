"""The machine that a lowering runs on, as far as portable kernels need one."""

from __future__ import annotations

from etdev import CPU, Probe


def probe() -> Probe:
    """Return what is found here: ExecuTorch brings portable kernels along, and nothing compiles."""
    return Probe(devices=[CPU])
