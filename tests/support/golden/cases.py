"""Cases: files of models, plugins and rules, each with the plan or the error that is expected.

[case a contested node goes to the earlier plugin]
[model]              or `[model NAME]` for each of several methods; see model.py; where
                     it is missing, that of the case before
[plugins]            a line each, in claim order; see plugin.py
[rules]              `pin P`, `limit PLUGIN KEY=N`, `device PLUGIN D`, `device PLUGIN METHOD D`,
                     `budget KEY=VALUE`, `strict`, `no-simplify`; optional
[registry]           the text of a registry.toml; optional
[plan] or [error]    what is expected; `pytest tests/unit/planner/test_cases.py --rewrite` writes it
[asked]              the calls of claim_nodes; where it stands, it is compared too
"""

from __future__ import annotations

import os
import re
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

from attrs import define, field

from etdev import Lowerer, Pin, registry
from etdev.errors import EtdevError, EtdevWarning
from support.golden.model import program
from support.golden.plan import asked_text, plan_text
from support.golden.plugin import Asked, plugin

_SECTION = re.compile(r"\[(case|model|plugins|rules|registry|plan|error|asked)(?: (.+))?\]")
_EXPECTED = ("plan", "error", "asked")


@define(eq=False)
class Case:
    """One case of a file.

    Args:
        title: What it shows.
        sections: Text of each section, by its heading.
        inherited: Sections of the models, if they are those of the case before.
    """

    title: str
    sections: dict[str, str] = field(factory=dict)
    inherited: dict[str, str] = field(factory=dict)

    @property
    def models(self) -> dict[str, str]:
        """Text of each model, by its heading."""
        own = {key: text for key, text in self.sections.items() if key.startswith("model")}
        return own or self.inherited

    @property
    def expected(self) -> dict[str, str]:
        """The sections that are compared."""
        return {key: text for key, text in self.sections.items() if key in _EXPECTED}

    def result(self) -> dict[str, str]:
        """What these sections should say."""
        asked: list[Asked] = []
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                result = {"plan": plan_text(self._lowerer(asked).plan(self._programs()))}
            except EtdevError as error:
                result = {"error": f"{type(error).__name__}: {error}"}
        said = [str(item.message) for item in caught if item.category is EtdevWarning]
        key = next(iter(result))
        result[key] = "\n".join([*(f"warning {line}" for line in said), result[key]])
        if "asked" in self.sections:
            result["asked"] = asked_text(asked)
        return result

    def __str__(self) -> str:
        return f"[case {self.title}]\n" + "\n".join(
            f"[{key}]\n{text}".strip() + "\n" for key, text in self.sections.items()
        )

    def rewrite(self) -> None:
        """Put the result in the place of what is expected."""
        given = {key: text for key, text in self.sections.items() if key not in _EXPECTED}
        self.sections = given | self.result()

    def _programs(self) -> Any:
        methods = {key.partition(" ")[2]: text for key, text in self.models.items()}
        return {name or "forward": program(text) for name, text in methods.items()}

    def _lowerer(self, asked: list[Asked]) -> Lowerer:
        options: dict[str, Any] = {}
        if "registry" in self.sections:
            options["registry"] = registry.parse(self.sections["registry"], Path("registry.toml"))
        for line in self._lines("rules"):
            _add_rule(options, *line.split())
        plugins = [plugin(line, asked) for line in self._lines("plugins")]
        return Lowerer(plugins, **options)

    def _lines(self, key: str) -> list[str]:
        return self.sections.get(key, "").splitlines()


def _add_rule(options: dict[str, Any], verb: str, *words: str) -> None:
    if verb in ("strict", "no-simplify"):
        options[verb.removeprefix("no-")] = verb == "strict"
    elif verb == "pin":
        options.setdefault("pins", []).append(Pin.parse(" ".join(words)))
    elif verb == "limit":
        limits = {key: int(number) for key, number in _pairs(*words[1:])}
        options.setdefault("limits", {}).setdefault(words[0], {}).update(limits)
    elif verb == "device":
        name, *method, device = words
        devices = options.setdefault("devices", {}).setdefault(name, {})
        devices[method[0] if method else "*"] = device
    elif verb == "budget":
        budget = options.setdefault("budget", {})
        for key, value in _pairs(*words):
            budget[key] = int(value) if value.isdigit() else value.split(",")
    else:
        raise ValueError(f"unknown rule {verb}")


def _pairs(*words: str) -> list[tuple[str, str]]:
    return [(key, value) for key, _, value in (word.partition("=") for word in words)]


def read(file: Path) -> tuple[str, list[Case]]:
    """What a file says ahead of its cases, and these."""
    opening: list[str] = []
    cases: list[Case] = []
    lines = opening
    collected: list[tuple[Case, str, list[str]]] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        heading = _SECTION.fullmatch(line)
        if heading and heading[1] == "case":
            cases.append(Case(heading[2]))
        elif heading:
            lines = []
            collected.append((cases[-1], line[1:-1], lines))
        else:
            lines.append(line)
    for case, key, section in collected:
        case.sections[key] = "\n".join(section).strip("\n")
    for before, case in pairwise(cases):
        case.inherited = before.models
    return "\n".join(opening).strip(), cases


def rewrite(file: Path) -> None:
    """Put what comes out in the place of what is expected, in all cases of a file."""
    opening, cases = read(file)
    for case in cases:
        case.rewrite()
    # At once, since another process of xdist may be reading it.
    anew = file.with_suffix(f".{os.getpid()}")
    anew.write_text("\n".join([f"{opening}\n", *map(str, cases)]), encoding="utf-8")
    anew.replace(file)
