"""Android's NDK: its compilers, and its names of processors. Read, not tried: none was at hand."""

from __future__ import annotations

import os
import re
from pathlib import Path

from attrs import frozen

# Names the folder of the NDK, as ExecuTorch's scripts read it.
VARIABLE = "ANDROID_NDK"
# The oldest Android that ExecuTorch's own libraries for it run on, by its API level.
_API = 26
_ABIS = {"aarch64": "arm64-v8a", "armv7a": "armeabi-v7a", "x86_64": "x86_64", "i686": "x86"}


@frozen
class Android:
    """A processor with Android.

    Args:
        triple: Without the API level, as the NDK's compilers begin: `aarch64-linux-android`.
        api: The API level of the oldest Android that it has to run on.
    """

    triple: str
    api: int = _API

    @classmethod
    def of(cls, triple: str) -> Android | None:
        """Return that of a triple such as `aarch64-linux-android26`; None if it is another one."""
        found = re.fullmatch(r"(\w+)-(?:\w+-)*(android(?:eabi)?)(\d*)", triple, re.ASCII)
        return cls(f"{found[1]}-linux-{found[2]}", int(found[3] or _API)) if found else None

    @property
    def abi(self) -> str:
        """Its name in CMake and in an AAR: `arm64-v8a`."""
        processor = self.triple.partition("-")[0]
        return _ABIS.get(processor, processor)

    @property
    def compiler(self) -> str:
        """The words that start the NDK's compiler, with its folder if ANDROID_NDK names the NDK."""
        name = f"{self.triple}{self.api}-clang++"
        prebuilt = Path(os.environ.get(VARIABLE) or ".") / "toolchains/llvm/prebuilt"
        return next((str(file) for file in sorted(prebuilt.glob(f"*/bin/{name}"))), name)

    @property
    def cure(self) -> str:
        """The advice without a compiler."""
        return f"install Android's NDK, and name its folder with {VARIABLE}"
