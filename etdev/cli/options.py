"""Arguments: what the commands make of the words they are given."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from etdev.cli import group
from etdev.errors import EtdevError, first_line

if TYPE_CHECKING:
    from etdev.edge.source import Method
    from etdev.lowerer import Lowerer
    from etdev.schema.plan import Plan


def read_plan(file: Path | None) -> Plan | None:
    """A plan from a file that `etdev plan --json` wrote."""
    if file is None:
        return None
    from etdev.schema.plan import Plan

    try:
        return Plan.from_json(file.read_text(encoding="utf-8"))
    except OSError as error:
        raise EtdevError(str(file), f"can't be read ({error.strerror})", "give a file") from error
    except Exception as error:
        what = f"is no plan ({first_line(error)})"
        raise EtdevError(str(file), what, "write it with etdev plan --json") from error


def lowerer(
    say: Callable[[str, str], None],
    plugins: Sequence[str],
    devices: Sequence[str],
    pins: Sequence[str],
    strict: bool | None,
    registry: Path | None,
) -> Lowerer:
    """A Lowerer as the lowering options say."""
    from etdev.lowerer import Lowerer

    return Lowerer(
        list(plugins) or None,
        registry=registry,
        devices=group.devices_of(devices),
        pins=group.pins_of(pins),
        strict=strict or None,
        listener=say,
    )


def methods(source: str, say: Callable[[str, str], None]) -> dict[str, Method]:
    """The methods of a SOURCE."""
    say("model", source)
    from etdev.cli import sources

    return sources.load(source)


def one_method(source: str, name: str, say: Callable[[str, str], None]) -> Method:
    """One method of a SOURCE."""
    found = methods(source, say)
    if name not in found:
        raise EtdevError(source, f"has no method {name!r}", f"it has {', '.join(found)}")
    return found[name]


def inputs(program: Path, file: Path | None, model: Method | None, method: str) -> list[Any]:
    """Inputs from a file, else of the model, else random ones that fit the .pte."""
    from etdev.runtime import run

    if file is not None:
        return run.load_inputs(file)
    if model is not None:
        return run.flat(model.example())
    return run.random_inputs(program, method)


def check_output(path: Path) -> None:
    """Complain before the long work, not after it."""
    if path.suffix != ".pte":
        raise EtdevError(str(path), "does not end in .pte", "name it model.pte")
    if not path.parent.is_dir():
        raise EtdevError(str(path), f"there is no folder {str(path.parent)!r}", "create it first")
    if path.is_dir():
        raise EtdevError(str(path), "is a folder", "choose another path")
    try:
        # Tried, not asked: os.access tells root that everything can be written.
        tempfile.TemporaryFile(dir=path.parent).close()
    except OSError as error:
        raise EtdevError(
            str(path), f"can't be written ({error.strerror})", "choose another path"
        ) from error
