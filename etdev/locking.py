"""Locks, which record everything that a .pte was made with, so that it can be made again."""

from __future__ import annotations

import json
import platform
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from attrs import asdict, frozen, has
from blake3 import blake3

from etdev.delegate.cache.origins import versions
from etdev.errors import LockError
from etdev.lowered import Lowered
from etdev.lowering.compilation import Compilation
from etdev.pte.read import compiled
from etdev.schema.device import Device
from etdev.schema.options import Surface, settings_on
from etdev.schema.structuring import CONVERTER, REFUSALS
from etdev.schema.wording import listed

VERSION = 1
# An upgrade of torch changes dozens of values; an error names the first few.
_SHOWN = 8
# The dotted names of a lock in words. What ends the sentence has no value that would tell anything.
_OTHER = "is compiled from another model or weight", "has other bytes"
_WORDS = {
    r"versions\.(.+)": r"\1",
    r"plugins\.order": "the list of plugins",
    r"plugins\.([^.]+)\.options\.(.+)": r"option \2 of plugin \1",
    r"plugins\.([^.]+)\.(\w+)": r"the \2 of plugin \1",
    r"target\.order": "the list of processors that verify",
    r"target\.(.+)\.(\w+)": r"the \2 of \1",
    r"limits\.([^.]+)\.(.+)": r"\2 of plugin \1",
    r"program\.(.+) fixes": r"the list of quirks that acted on method '\1'",
    r"program\.(.+)\.order": r"the list of partitions of method '\1'",
    r"program\.(.+)\.([^.]+)\.key": rf"partition \2 of method '\1' {_OTHER[0]}",
    r"program\.(.+)\.([^.]+)\.payload": rf"partition \2 of method '\1' {_OTHER[1]}",
    r"program\.(.+)\.([^.]+)\.(\w+)": r"the \3 of partition \2 of method '\1'",
    r"digest\.(.+)": rf"the \1 {_OTHER[1]}",
}


@frozen
class Lock:
    """Everything that a .pte was made with, as plain data.

    Args:
        setup: Versions, plugins with their options, and the settings that change a .pte.
        program: By method, the partitions in run order: name, plugin, backend, device, cache key
            (empty if it has none), and the digest of its payload.
        files: Digests of the .pte and its .ptd files, by suffix.
    """

    setup: Mapping[str, Any]
    program: Mapping[str, Any]
    files: Mapping[str, Any]

    def to_json(self) -> str:
        """Return the lock as sorted text, for line-by-line comparison."""
        content = {"lock": VERSION, **asdict(self, recurse=False)}
        return json.dumps(content, indent=2, sort_keys=True) + "\n"

    @classmethod
    def read(cls, path: Path) -> Lock:
        """Read a lock file; a LockError if it can't be read, or is not a lock of this version."""
        cure = f"write it with etdev lower --lock {path}"
        try:
            data = json.loads(path.read_text("utf-8"))
            if data["lock"] == VERSION:
                return CONVERTER.structure(data, cls)
        except OSError as error:
            raise LockError(str(path), f"can't be read ({error.strerror})", cure) from error
        except (ValueError, RecursionError, TypeError, LookupError, *REFUSALS):
            pass
        raise LockError(str(path), f"is not a lock of version {VERSION}", cure)

    def check_setup(self, setup: Mapping[str, Any], path: Path) -> None:
        """Raise a LockError that lists the differences if a lowering has another setup."""
        _refuse(path, _problems(self.setup, setup))

    def check(self, made: Lock, path: Path) -> None:
        """Raise a LockError that lists the differences if a .pte is not the locked one."""
        locked, now = ({**lock.setup, "program": lock.program} for lock in (self, made))
        # Different partitions explain different files.
        files = {"digest": self.files}, {"digest": made.files}
        _refuse(path, _problems(locked, now) or _problems(*files))


def setup_of(compilation: Compilation, target: Sequence[Mapping[str, str]] = ()) -> dict[str, Any]:
    """Return the setup that, with the model, determines a .pte; with facts of where it runs."""
    plugins, options = compilation.composition.plugins, compilation.composition.options
    names = [p.distribution for p in plugins if p.version and not p.builtin]
    return {
        "python": ".".join(platform.python_version_tuple()[:2]),
        "versions": versions(names),
        "plugins": [
            {name: getattr(plugin, name) for name in ("name", "distribution", "version")}
            | {"options": _options(plugin.implementation)}
            for plugin in plugins
        ],
        **{own.name: _plain(getattr(options, own.name)) for own in settings_on(Surface.LOCK)},
        **({"target": list(target)} if target else {}),
    }


def lock_of(
    compilation: Compilation,
    lowered: Lowered,
    path: Path,
    target: Sequence[Mapping[str, str]] = (),
) -> Lock:
    """Return the lock of a .pte that a lowering was saved to."""
    keys = {(o.method, o.partition): o.key for o in lowered.outcomes}
    delegates = compiled(path)
    program: dict[str, Any] = {}
    for plan in lowered.plan.methods:
        named = zip(plan.delegates, delegates[plan.method], strict=True)
        payloads = {name: blake3(bytes(one.payload)).hexdigest() for name, one in named}
        program[plan.method] = [
            {
                "partition": partition.name,
                "plugin": partition.plugin,
                "backend": partition.backend_id,
                "device": str(partition.device),
                "key": keys.get((plan.method, partition.name), ""),
                "payload": payloads[partition.name],
            }
            for partition in plan.partitions
        ]
        program[f"{plan.method} fixes"] = sorted({fix.row for fix in plan.fixes})
    files = [path, *path.parent.glob(f"{path.stem}.*.ptd")]
    contents = {file.name.removeprefix(path.stem): file.read_bytes() for file in files}
    digests = {suffix: blake3(content).hexdigest() for suffix, content in contents.items()}
    return Lock(setup_of(compilation, target), program, digests)


def _plain(setting: object) -> Any:
    """Return a setting as plain data; pins as their text, which is how errors name them."""
    if isinstance(setting, tuple):
        return [str(pin) for pin in setting]
    return CONVERTER.unstructure(setting)


def _options(implementation: Any) -> dict[str, str] | str:
    """Return the options of an attrs value, as text; else the type of the object."""
    kind = type(implementation)
    if not has(kind):
        return f"{kind.__module__}.{kind.__qualname__}"
    names = [a.name for a in kind.__attrs_attrs__ if a.init and not a.name.startswith("_")]
    return {name: _text(getattr(implementation, name)) for name in names}


def _text(value: Any) -> str:
    """Return a value as text that is the same in every process."""
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(map(_text, value))}]"
    plain = value is None or isinstance(value, (bool, int, float, str, Device))
    return str(value) if plain else type(value).__qualname__


def _refuse(path: Path, problems: Mapping[str, str]) -> None:
    if not problems:
        return
    cure = "restore that, or lock it again without --locked"
    if all(name.endswith(".payload") for name in problems):
        cure = (
            "not every compiler writes the same bytes in another process: lower with the cache "
            "that the locked .pte was made with, or lock it again without --locked"
        )
    named = listed([*problems.values()], _SHOWN)
    raise LockError(str(path), f"does not match this lowering: {named}", cure)


def _problems(locked: Mapping[str, Any], made: Mapping[str, Any]) -> dict[str, str]:
    """Return the differences as sentences, by name: `torch was 2.13.0, and is 2.14.1`."""
    old, new = dict(_leaves(locked)), dict(_leaves(made))
    names = dict.fromkeys([*old, *new])
    values = {name: (old.get(name, "missing"), new.get(name, "missing")) for name in names}
    problems = {}
    for name, (was, now) in values.items():
        # A lowering without a cache has no keys; the digests of the payloads say the rest.
        if was == now or (name.endswith(".key") and "" in (was, now)):
            continue
        what = _worded(name)
        problems[name] = what if what.endswith(_OTHER) else f"{what} was {was}, and is {now}"
    lists = tuple(name.removesuffix("order") for name in problems if name.endswith(".order"))
    for name in [*problems]:
        # The list says which plugins or partitions are new, and the key that bytes differ.
        told = name.startswith(lists) and not name.endswith(".order")
        is_new = told and "missing" in values[name]
        if is_new or (name.endswith("payload") and f"{name[:-7]}key" in problems):
            del problems[name]
    return problems


def _worded(name: str) -> str:
    """Return the dotted name of a value in words."""
    for pattern, words in _WORDS.items():
        if match := re.fullmatch(pattern, name):
            return match.expand(words)
    return name


def _leaves(value: Any, name: str = "") -> Iterator[tuple[str, str]]:
    """Yield the dotted name and the text of each value; tables in a list have names."""
    if value and isinstance(value, list) and all(isinstance(item, Mapping) for item in value):
        # Plugins have names, and partitions name themselves.
        names = [str(item.get("name", item.get("partition"))) for item in value]
        yield f"{name}.order", ", ".join(names)
        value = dict(zip(names, value, strict=True))
    if value and isinstance(value, Mapping):
        for key, item in value.items():
            yield from _leaves(item, f"{name}.{key}".removeprefix("."))
    else:
        yield name, "none" if value is None else str(value)
