"""Wrong weights, which verification has to find."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend


@pytest.fixture
def spoil(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Make XNNPACK compile wrong weights wherever a delegate has a certain constant."""
    compiler = XnnpackBackend.preprocess

    def of(name: str) -> None:
        def preprocess(program: Any, specs: Any) -> Any:
            # A name that begins with a digit is that of the input here.
            for key in program.state_dict.keys() & {name, "p_" + name.replace(".", "_")}:
                program.state_dict[key] = torch.nn.Parameter(program.state_dict[key] * 1.5)
            return compiler(program, specs)

        monkeypatch.setattr(XnnpackBackend, "preprocess", staticmethod(preprocess))
        # Without templates, each partition is compiled.
        monkeypatch.setattr("etdev_cpu.compiler.structure_of", lambda *_: None)

    return of
