"""Backends: the classes that compile, found by their names as ExecuTorch finds them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails

from etdev.errors import CompileError
from etdev.registry.plugin import Plugin
from etdev.schema.partition import Partition


def compiler_of(partition: Partition) -> str:
    """Name of the backend that compiles a partition."""
    return partition.compiler or partition.backend_id


def find_backend(partition: Partition, plugin: Plugin) -> type[BackendDetails]:
    """The class that compiles a partition of a plugin.

    Of several with its name, it is the one in the plugin's own package.

    Raises:
        CompileError: There is none, or no telling which.
    """
    name = compiler_of(partition)
    found = namesakes(name)
    if len(found) == 1:
        return found[0]
    if not found:
        known = ", ".join(sorted(backend.__name__ for backend in BackendDetails.__subclasses__()))
        raise CompileError(
            partition.plugin,
            f"backend {name!r} of {partition.where} is not loaded",
            f"import it in claim_nodes or in compile_context; loaded are {known}",
        )
    own = [backend for backend in found if _package(backend) == _package(_author(plugin))]
    if len(own) == 1:
        return own[0]
    raise ambiguous(partition, found)


def namesakes(name: str) -> list[type[BackendDetails]]:
    """The backends of a name; of one that was defined again, as in a notebook, the last.

    A file that is imported under two names defines its classes twice.
    """
    backends = (b for b in BackendDetails.__subclasses__() if b.__name__ == name)
    return list({(_file(b), b.__qualname__): b for b in backends}.values())


def refuse_namesake(
    partition: Partition, backend: type[BackendDetails], known: dict[str, type[BackendDetails]]
) -> None:
    """Refuse a partition whose payload a namesake of another partition's backend would be given.

    Args:
        partition: The partition.
        backend: The class that compiles it.
        known: The first class for each backend of the runtime; filled here.

    Raises:
        CompileError: There are two.
    """
    other = known.setdefault(partition.backend_id, backend)
    if other is not backend and other.__name__ == backend.__name__:
        raise ambiguous(partition, [other, backend])


def has_own(backend: type[BackendDetails], method: str) -> bool:
    """Whether a backend has its own way of something; as a class or a static method."""
    own, default = (getattr(owner, method, None) for owner in (backend, BackendDetails))
    return getattr(own, "__func__", own) is not getattr(default, "__func__", default)


def ambiguous(partition: Partition, backends: Iterable[type[BackendDetails]]) -> CompileError:
    """The error about a partition that one of several namesakes would compile."""
    places = " and in ".join(sorted(backend.__module__ for backend in backends))
    return CompileError(
        partition.plugin,
        f"the backend {compiler_of(partition)!r} of {partition.where} is defined in {places}",
        "rename one of the classes, as a .pte and ExecuTorch know backends by their names",
    )


def _author(plugin: Plugin) -> Any:
    """Who decides what the plugin claims; a partitioner, if it is one that is adapted."""
    return getattr(plugin.implementation, "partitioner", plugin.implementation)


def _file(backend: type[BackendDetails]) -> str:
    """Where a class is defined: a file, or a module without one."""
    module = sys.modules.get(backend.__module__)
    return getattr(module, "__file__", None) or backend.__module__


def _package(thing: Any) -> str:
    """Name of the topmost package in which a class, an object's class or a module is."""
    module = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    return str(module).partition(".")[0]
