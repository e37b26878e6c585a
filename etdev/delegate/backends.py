"""The classes that compile, found by their names as ExecuTorch finds them."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Iterable
from typing import Any

from executorch.exir.backend.backend_details import BackendDetails

from etdev.errors import CompileError, PluginError
from etdev.registry.plugin import Plugin
from etdev.schema.partition import Partition


def compiler_of(partition: Partition) -> str:
    """Return the name of the backend that compiles a partition."""
    return partition.compiler or partition.backend_id


def find_backend(partition: Partition, plugin: Plugin) -> type[BackendDetails]:
    """Return the class that compiles a partition; of several, that of the plugin's own package."""
    name = compiler_of(partition)
    found = namesakes(name)
    if not found:
        known = ", ".join(sorted(backend.__name__ for backend in BackendDetails.__subclasses__()))
        what = f"backend {name!r} of {partition.where} is not loaded"
        cure = f"import it in claim_nodes or in compile_context; loaded are {known}"
        raise CompileError(partition.plugin, what, cure)
    if len(found) > 1:
        author = getattr(plugin.implementation, "partitioner", plugin.implementation)
        own = [backend for backend in found if _package(backend) == _package(author)]
        if len(own) != 1:
            raise ambiguous(partition, found)
        found = own
    return found[0]


def namesakes(name: str) -> list[type[BackendDetails]]:
    """Return the backends with a name; of one that was defined again, as in a notebook, the last.

    A file that is imported under two names defines its classes twice.
    """
    backends = (b for b in BackendDetails.__subclasses__() if b.__name__ == name)
    return list({(_file(b), b.__qualname__): b for b in backends}.values())


def check_namesake(
    partition: Partition, backend: type[BackendDetails], known: dict[str, type[BackendDetails]]
) -> None:
    """Refuse a partition whose payload would be given to another class of the same name.

    The first class for each backend of the runtime is put into `known`.
    """
    other = known.setdefault(partition.backend_id, backend)
    if other is not backend and other.__name__ == backend.__name__:
        raise ambiguous(partition, [other, backend])


def unasked(partitions: Iterable[Partition]) -> list[PluginError]:
    """Return an error for each plugin whose compiler ExecuTorch's own loop doesn't find.

    It has the first backend with the partition's id compile, and writes that id into the .pte.
    """
    faults = dict[str, PluginError]()
    for partition in partitions:
        found = namesakes(compiler_of(partition))
        # A compiler may say that the backend itself writes the same bytes.
        same = any(getattr(backend, "equals", None) == partition.backend_id for backend in found)
        if partition.compiler and not same:
            who, compiler = partition.plugin, partition.compiler
            what = f"has {compiler} compile {partition.where} for {partition.backend_id}, "
            what += "which a partitioner can't ask of ExecuTorch"
            own = (getattr(backend, "instead", "") for backend in found)
            cure = ", or ".join(["lower with etdev.Lowerer", *filter(None, own)])
            faults.setdefault(who, PluginError(who, what, cure))
        elif len(found) > 1:
            raise ambiguous(partition, found)
    return list(faults.values())


def has_own(backend: type[BackendDetails], method: str) -> bool:
    """Return True if a backend overrides a method, as a class method or as a static method."""
    own, default = (getattr(owner, method, None) for owner in (backend, BackendDetails))
    return getattr(own, "__func__", own) is not getattr(default, "__func__", default)


def ambiguous(partition: Partition, backends: Iterable[type[BackendDetails]]) -> CompileError:
    """Return the error about a partition that several backends with one name could compile."""
    places = " and in ".join(sorted(backend.__module__ for backend in backends))
    return CompileError(
        partition.plugin,
        f"the backend {compiler_of(partition)!r} of {partition.where} is defined in {places}",
        "rename one of the classes, as a .pte and ExecuTorch know backends by their names",
    )


def _file(backend: type[BackendDetails]) -> str:
    """Return the file that defines a class, or its module if that has no file."""
    module = sys.modules.get(backend.__module__)
    return getattr(module, "__file__", None) or backend.__module__


def _package(thing: Any) -> str:
    """Return the topmost package of a class, of an object's class or of a module."""
    module = thing.__name__ if inspect.ismodule(thing) else thing.__module__
    return str(module).partition(".")[0]
