"""Settings of the edge conversion."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from attrs import field, frozen
from executorch.exir import EdgeCompileConfig


@frozen(eq=False)
class Settings:
    """Settings of the conversion, passed on to ExecuTorch's `to_edge_transform_and_lower`.

    Args:
        compile_config: Its EdgeCompileConfig.
        transform_passes: Passes over the edge programs, run before anything is claimed.
        constant_methods: Methods that return a constant, by name.
        generate_etrecord: Keep what ExecuTorch's Inspector needs.
    """

    compile_config: EdgeCompileConfig = field(factory=EdgeCompileConfig)
    transform_passes: Any = None
    constant_methods: Mapping[str, Any] | None = None
    generate_etrecord: bool = False
