"""The bootstrap: what is sent to a target that has ExecuTorch but no etdev."""

from __future__ import annotations

from importlib.resources import files

# In the order of their imports; the last one is run.
_FILES = (
    "runtime/loading",
    *(f"tuning/target/{name}" for name in ("wire", "usage", "facts", "work")),
    "tuning/worker",
)
_PACKAGES = ("etdev", "etdev.runtime", "etdev.tuning", "etdev.tuning.target")

_LOADER = """\
import sys, types
for name in {packages!r}:
    sys.modules[name] = types.ModuleType(name)
    sys.modules[name].__path__ = []
for name, source in {sources!r}:
    module = types.ModuleType(name)
    sys.modules[name] = module
    exec(compile(source, name, "exec"), module.__dict__)
module.main()
"""


def program() -> bytes:
    """The worker as one Python program."""
    folder = files("etdev")
    names = ["etdev." + name.replace("/", ".") for name in _FILES]
    texts = [folder.joinpath(f"{name}.py").read_text("utf-8") for name in _FILES]
    sources = list(zip(names, texts, strict=True))
    return _LOADER.format(packages=_PACKAGES, sources=sources).encode()


def arguments(size: int) -> list[str]:
    """Arguments with which a Python runs a program of that many bytes from its standard input."""
    # Not a character that a shell, a template or JSON would want quoted twice.
    return ["-u", "-c", f"exec(open(0,'rb',closefd=False).read({size}))"]
