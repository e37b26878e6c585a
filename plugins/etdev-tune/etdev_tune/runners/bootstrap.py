"""The bootstrap: what is sent to a target that has ExecuTorch but no etdev."""

from __future__ import annotations

from importlib.resources import files

# In the order of their imports; the last one is run.
_MODULES = (
    "etdev.runtime.loading",
    *(f"etdev_tune.target.{name}" for name in ("wire", "usage", "facts", "work")),
    "etdev_tune.worker",
)
_PACKAGES = ("etdev", "etdev.runtime", "etdev_tune", "etdev_tune.target")

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
    sources = [(name, _source(name)) for name in _MODULES]
    return _LOADER.format(packages=_PACKAGES, sources=sources).encode()


def _source(module: str) -> str:
    package, _, path = module.partition(".")
    return files(package).joinpath(f"{path.replace('.', '/')}.py").read_text("utf-8")


def arguments(size: int) -> list[str]:
    """Arguments with which a Python runs a program of that many bytes from its standard input."""
    # Not a character that a shell, a template or JSON would want quoted twice.
    return ["-u", "-c", f"exec(open(0,'rb',closefd=False).read({size}))"]
