"""Flows: the ways from a program to the bytes of a .pte, as Python."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from attrs import frozen

from etdev.app import Setup

# The settings of a registry that only choose among plugins, which a flow names.
_CHOOSING = ("unlisted", "trusted")
_ONE_STEP = """\
from executorch.exir import to_edge_transform_and_lower
manager = to_edge_transform_and_lower(program{})
"""
_TWO_STEPS = """\
from executorch.exir import EdgeCompileConfig, to_edge
config = EdgeCompileConfig(_check_ir_validity=False)
manager = to_edge(program, compile_config=config)
for partitioner in [{}]:
    manager = manager.to_backend(partitioner)
"""
_EMITTED = "buffer = manager.to_executorch().buffer\n"
_LOWERER = """\
from etdev import Lowerer
with torch.no_grad():
    buffer = Lowerer({}).lower(program).to_executorch().buffer
"""


@frozen(eq=False)
class Flow:
    """A way from a program to the bytes of a .pte.

    Args:
        name: Its name in reports.
        maker: The component that is blamed for a failure.
        statements: Its statements, imports first. They read `program`, which torch.export made, or
            a mapping of these by method, and write `buffer`.
        is_etdev: It is etdev's.
        older: The same in older steps of ExecuTorch's.
        variants: Flows with less in them, such as one backend of several.
    """

    name: str
    maker: str
    statements: str
    is_etdev: bool = False
    older: Sequence[Flow] = ()
    variants: Sequence[Flow] = ()


def executorch(*partitioners: str) -> Flow:
    """Return ExecuTorch's own flow.

    Args:
        partitioners: The source of each partitioner: the lines that import it, and as the last one
            the expression that makes it. Portable kernels alone without any.
    """
    sources = [partitioner.splitlines() for partitioner in partitioners]
    imports = "".join(f"{line}\n" for source in sources for line in source[:-1])
    made = ", ".join(source[-1] for source in sources)
    if not made:
        statements = _ONE_STEP.format("") + _EMITTED
        return Flow("portable kernels", "Portable kernels", statements)
    maker = ", ".join(source[-1].partition("(")[0] for source in sources)
    in_two = imports + _TWO_STEPS.format(made) + _EMITTED
    in_one = imports + _ONE_STEP.format(f", partitioner=[{made}]") + _EMITTED
    older = [Flow(f"to_edge + to_backend with {maker}", maker, in_two)]
    alone = [executorch(own) for own in partitioners] if len(sources) > 1 else []
    name = f"to_edge_transform_and_lower with {maker}"
    return Flow(name, maker, in_one, older=older, variants=alone)


def etdev(tables: Mapping[str, Any], **arguments: Any) -> Flow:
    """Return etdev's flow.

    Args:
        tables: The tables of a registry.
        arguments: Other arguments of `Lowerer`.
    """
    plugins = tables["plugins"]
    names = [*plugins] or ["portable"]
    is_plain = len(tables) == 1 and not any(plugins.values())
    given = {"plugins": names} if is_plain else {"registry": dict(tables)}
    text = ", ".join(f"{name}={value!r}" for name, value in {**given, **arguments}.items())
    alone = [{"plugins": {name: own}} for name, own in plugins.items()] if len(names) > 1 else []
    variants = [etdev(each, **arguments) for each in alone]
    name = f"etdev with {', '.join(names)}"
    return Flow(name, name, _LOWERER.format(text), is_etdev=True, variants=variants)


PORTABLE = executorch()


def flows_of(partitioner: str | None, settings: Mapping[str, Any]) -> list[Flow]:
    """Return etdev's flow and ExecuTorch's own, if the plugins say which partitioners they have.

    Args:
        partitioner: `module:class` of the only one of ExecuTorch's own flow, without etdev's.
        settings: Arguments of `Lowerer`.

    Raises:
        EtdevError: A plugin that is named can't compile here.
    """
    if partitioner:
        return [executorch(_source(partitioner))]
    setup = Setup.of(**settings)
    plugins = setup.plugins.values()
    known = (getattr(plugin.implementation, "partitioner_source", "") for plugin in plugins)
    sources = [text for text in known if text]
    made = (plugin.made for plugin in plugins)
    sources += [_source(found[0], found[2]) for found in made if found and found[1]]
    own = [executorch(*sources)] if sources or not plugins else []
    return [_etdev(setup, settings.get("cache")), *own]


def _etdev(setup: Setup, cache: object) -> Flow:
    """Return etdev's flow with what differs from the defaults of a registry."""
    usual = Setup.tables(Setup.of((), registry={}).registry)
    tables = {
        name: table
        for name, table in Setup.tables(setup.registry).items()
        if name == "plugins" or (name not in _CHOOSING and table != usual.get(name))
    }
    return etdev(tables, **({} if cache is None else {"cache": cache}))


def _source(partitioner: str, options: Mapping[str, Any] | None = None) -> str:
    module, _, name = partitioner.partition(":")
    given = ", ".join(f"{key}={value!r}" for key, value in (options or {}).items())
    return f"from {module} import {name}\n{name}({given})"
