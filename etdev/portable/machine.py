"""Requirements of portable kernels on this machine: none."""

from __future__ import annotations

from etdev import CPU, Probe


def probe() -> Probe:
    """Return what is found here: ExecuTorch brings portable kernels along, and nothing compiles."""
    return Probe(devices=[CPU])
