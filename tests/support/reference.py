"""The reference for authors of plugins, made from docstrings; prints plugins/REFERENCE.md.

PYTHONPATH=tests python -m support.reference > plugins/REFERENCE.md
"""

from __future__ import annotations

import importlib
import inspect
import re
import sys
import textwrap
from collections.abc import Iterator
from functools import cached_property
from typing import Any

import attrs
from attrs import frozen
from typing_extensions import is_protocol

from etdev.schema.stages import Stage

# The sections that ruff's Google convention knows, as far as they occur.
SECTIONS = ("Args", "Returns", "Raises", "Example")
INTRODUCTION = """\
# Reference

Made from docstrings by `PYTHONPATH=tests python -m support.reference`; a test fails when it is
stale.
[README.md](README.md) explains how the parts fit together, and when each hook is called.
"""


@frozen
class Chapter:
    """A chapter: its title, its first sentences, and the objects it describes as module:name."""

    title: str
    text: str
    names: tuple[str, ...]


def _in(module: str, names: str) -> Iterator[str]:
    """Return the places of some names in a module."""
    return (f"{module}:{name}" for name in names.split())


CHAPTERS = (
    Chapter(
        "The hooks",
        "A plugin's methods, decorated with `etdev.hookimpl`. Each may take fewer arguments.",
        (
            *_in("etdev.hookspecs", "quirks probe prepare keep_whole decompose claim_nodes"),
            *_in("etdev.hookspecs", "claim_constants resolve_device device_caveat annotate"),
            *_in("etdev.hookspecs", "compile_context cache_key payload_device payload_data"),
            *_in("etdev.hookspecs", "runner_for rounds_to quantizers"),
        ),
    ),
    Chapter(
        "Values that hooks are given",
        "All of them are frozen and compared by content.",
        (
            *_in("etdev", "Draft Partition Constant Tensor"),
            *_in("etdev.schema.partition", "CompileSpec"),
            *_in("etdev", "Device"),
        ),
    ),
    Chapter(
        "Values that hooks return",
        "A wrong value raises an error that names the plugin and the field.",
        (
            *_in("etdev", "Claim Group Refusal KeepWhole Assumed Probe Bypass"),
            *_in("etdev.quirks", "Quirk Stage Nodes SourceDifference Rejection FaultyOps"),
        ),
    ),
    Chapter(
        "Functions about graphs",
        "`etdev.graph` imports torch, so import it inside hooks.",
        (
            *_in("etdev.graph", "op_name aten_op own_pieces pieces_of unwritten_constants"),
            *_in("etdev.graph", "stored_values computed_from written_by folded_integers"),
            *_in("etdev.graph", "with_contiguous_weights channels_last_weights is_channels_last"),
            *_in("etdev.graph", "is_complex interpreted_copy"),
        ),
    ),
    Chapter(
        "Applications",
        "Commands that lower, run or compare models; see\n"
        "[README.md](README.md#writing-an-application).",
        (
            *_in("etdev.app", "working report Document Sheet"),
            *_in("etdev.app", "ProgramFile EagerMethod Setup quantizers"),
        ),
    ),
    Chapter(
        "Views",
        "Files that people look at, by the entry-point group `etdev.views`.",
        (*_in("etdev.cli.viewing", "View Viewed"),),
    ),
    Chapter(
        "Runners",
        "Runtimes that load a `.pte`, by the entry-point group `etdev.runners`.",
        (
            *_in("etdev.runtime.runners", "Runner PythonRunner"),
            *_in("etdev.errors", "install_hint"),
            *_in("etdev.runtime.child", "Child ChildResult"),
        ),
    ),
    Chapter(
        "The test kit",
        "`pip install 'etdev[testing]'`; see [its checks](README.md#the-conformance-kit).",
        (
            *_in("etdev.testing", "Requirements run Simulation Scoreboard"),
            *_in("etdev.testing.fakes", "Accelerator"),
        ),
    ),
    Chapter(
        "Lowering",
        "The calls that your users make, and that your tests make.",
        (
            *_in("etdev", "Lowerer Lowered partitioner adapt Settings Registry Pin Limits Budget"),
            *_in("etdev", "CacheSettings"),
        ),
    ),
    Chapter(
        "Results",
        "Values that a lowering returns.",
        (
            *_in("etdev", "Plan"),
            *_in("etdev.schema.plan", "MethodPlan"),
            *_in("etdev.schema.ledger", "Ledger Entry"),
            *_in("etdev", "Outcome"),
        ),
    ),
    Chapter(
        "Errors",
        "All descend from `EtdevError`.",
        (*_in("etdev.errors", "EtdevError"),),
    ),
)


def reference() -> str:
    """Return the text of the reference."""
    return "\n".join([INTRODUCTION, *_contents(), *_chapters()])


def loaded(place: str) -> Any:
    """Return the object at `module:name`."""
    module, name = place.split(":")
    return getattr(importlib.import_module(module), name)


def _contents() -> Iterator[str]:
    for chapter in CHAPTERS:
        names = [_title(name) for name in chapter.names]
        links = ", ".join(f"[{name}](#{_anchor(name)})" for name in names)
        yield f"- [{chapter.title}](#{_anchor(chapter.title)}): {links}"
    yield ""


def _anchor(title: str) -> str:
    return re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def _title(place: str) -> str:
    """Return `etdev.Claim`, or `quirks` of a hook, by which a plugin's author calls it."""
    module, name = place.split(":")
    return name if module == "etdev.hookspecs" else f"{module}.{name}"


def _chapters() -> Iterator[str]:
    for chapter in CHAPTERS:
        yield f"## {chapter.title}\n\n{chapter.text}\n"
        for place in chapter.names:
            yield from _described(loaded(place), _title(place))
    yield from _errors(importlib.import_module("etdev.errors").EtdevError)


def _described(thing: Any, title: str) -> Iterator[str]:
    parts = sections(thing)
    yield f"### {title}\n"
    if inspect.isfunction(thing):
        yield f"```python\n{_call(thing)}\n```\n"
    yield parts[""] + "\n"
    documented = described_arguments(thing)
    # The names and types of a function's arguments stand in its first line.
    if (rows := list(arguments(thing))) and (documented or inspect.isclass(thing)):
        yield "| argument | type | default | meaning |\n|---|---|---|---|"
        for name, kind, default in rows:
            cells = (f"`{name}`", _code(kind), _code(default), documented[name])
            yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
        yield ""
    for section in ("Returns", "Raises"):
        if text := parts.get(section):
            yield f"**{section}** {_flowing(text)}\n"
    if example := parts.get("Example"):
        yield f"```python\n{example}\n```\n"
    if inspect.isclass(thing) and (members := list(_members(thing))):
        yield "| member | what it is |\n|---|---|"
        yield from members
        yield ""


def sections(thing: Any) -> dict[str, str]:
    """Return the parts of a docstring by heading; the prose before them has the empty one."""
    text = inspect.getdoc(thing) or ""
    heads = "|".join(SECTIONS)
    pieces = re.split(rf"^({heads}):\n", text, flags=re.MULTILINE)
    parts = {"": pieces[0].strip()}
    for head, body in zip(pieces[1::2], pieces[2::2], strict=True):
        parts[head] = textwrap.dedent(body).strip()
    return parts


def described_arguments(thing: Any) -> dict[str, str]:
    """Return the description of each argument, those of base classes included."""
    described: dict[str, str] = {}
    for owner in reversed(inspect.getmro(thing)) if inspect.isclass(thing) else (thing,):
        if owner is object or not owner.__doc__ or owner.__module__.startswith(("typing", "enum")):
            continue
        for item in re.split(r"^(?=\w+: )", sections(owner).get("Args", ""), flags=re.MULTILINE):
            if item:
                name, _, text = item.partition(": ")
                described[name] = " ".join(text.split())
    # Settings say it where they are defined.
    known = attrs.fields(thing) if inspect.isclass(thing) and attrs.has(thing) else ()
    settings = {own.name: own.metadata["help"] for own in known if "help" in own.metadata}
    return settings | described


def arguments(thing: Any) -> Iterator[tuple[str, str, str]]:
    """Yield name, type and default of each argument."""
    if inspect.isclass(thing) and attrs.has(thing) and "__init__" not in _own(thing):
        # As they were written: a converter resolves those of attrs' fields when it is first used.
        written = {}
        for owner in reversed(inspect.getmro(thing)):
            written.update(inspect.get_annotations(owner))
        for own in attrs.fields(thing):
            if own.init and not own.name.startswith("_"):
                yield own.alias or own.name, str(written[own.name]), _default(own.default)
        return
    if inspect.isclass(thing) and is_protocol(thing):
        return
    for name, own in inspect.signature(thing).parameters.items():
        if name != "self" and not name.startswith("_"):
            given = attrs.NOTHING if own.default is own.empty else own.default
            yield name, str(own.annotation), _default(given)


def _own(thing: type) -> set[str]:
    """Return the names that the class statement defined, not attrs."""
    return set(thing.__dict__) if "__attrs_init__" in thing.__dict__ else set()


def _default(value: Any) -> str:
    if value is attrs.NOTHING:
        return ""
    if isinstance(value, attrs.Factory):  # type: ignore[arg-type]
        return f"{value.factory.__name__}()"
    plain = value is None or isinstance(value, (bool, int, float, str, tuple))
    # The text of an object would have its address, and that of Python's path another machine's.
    text = repr(value).replace(repr(sys.executable), "sys.executable")
    return getattr(value, "__qualname__", None) or (text if plain else str(type(value).__name__))


def _code(text: str) -> str:
    return f"`{text}`" if text else ""


def _call(function: Any) -> str:
    signature = inspect.signature(function)
    lines = [f"{own}," for own in signature.parameters.values()]
    answer = f" -> {signature.return_annotation}"
    short = f"def {function.__name__}({' '.join(lines).rstrip(',')}){answer}"
    if len(short) <= 100:
        return short
    return "\n".join(
        [f"def {function.__name__}(", *(f"    {line}" for line in lines), f"){answer}"]
    )


def _flowing(text: str) -> str:
    return " ".join(text.split())


def _members(thing: type) -> Iterator[str]:
    """Yield a row for each public property and method with its first paragraph."""
    seen: set[str] = set()
    for owner in inspect.getmro(thing):
        if not owner.__module__.startswith("etdev"):
            continue
        for name, value in owner.__dict__.items():
            if name.startswith("_") or name in seen:
                continue
            seen.add(name)
            target = value.__func__ if isinstance(value, (classmethod, staticmethod)) else value
            text = inspect.getdoc(target) if _is_member(target) else None
            if text:
                call = "()" if inspect.isfunction(target) else ""
                yield f"| `{name}{call}` | {_flowing(text.split(chr(10) * 2)[0])} |"
    # The values of a class that has a fixed number of them, such as the stages.
    for name, value in vars(inspect.getmodule(thing)).items():
        if thing is Stage and type(value) is Stage:
            yield f"| `{name}` | {value.name}: {value.given} |"


def _is_member(value: Any) -> bool:
    return inspect.isfunction(value) or isinstance(value, (property, cached_property))


def _errors(root: type, depth: int = 0) -> Iterator[str]:
    """Yield the tree of errors with the first line of each."""
    yield f"{'  ' * depth}- `{root.__name__}`: {_flowing(sections(root)[''])}"
    for own in root.__subclasses__():
        if own.__module__ == root.__module__:
            yield from _errors(own, depth + 1)


if __name__ == "__main__":
    print(reference())
