"""`etdev docs` prints the documents of etdev and of installed distributions."""

from __future__ import annotations

from importlib.metadata import metadata
from pathlib import Path

import click
from rich.console import Console
from rich.markdown import Markdown

from etdev.cli import options, results, streams
from etdev.cli.group import Command
from etdev.errors import EtdevError, close_to
from etdev.registry import extensions
from etdev.report.sheet import Sheet
from etdev.schema.documents import MANUAL

# Documents of etdev itself: their file in a checkout, below the package in a wheel, and their use.
_OWN = {
    "plugin": ("plugins/README.md", "write a plugin for a backend"),
    "tutorial": ("plugins/TUTORIAL.md", "an hour with a model of your own"),
    "registry": ("registry.toml", "every setting of registry.toml"),
    "reference": ("plugins/REFERENCE.md", "hooks, and the values that they take and return"),
    "integration": ("plugins/INTEGRATION.md", "other tools, and the JSON of each command"),
    "reliability": ("plugins/RELIABILITY.md", "errors, and differences from PyTorch"),
    "compatibility": ("plugins/COMPATIBILITY.md", "versions that were tried"),
}


def _topics() -> dict[str, str]:
    """Return what each document is for: etdev's own, and the README of each distribution."""
    groups = ("etdev", extensions.COMMANDS, extensions.RUNNERS, extensions.VIEWS)
    found = {
        candidate.distribution
        for group in groups
        for same in extensions.candidates(group).values()
        for candidate in same
    }
    own = {name: about for name, (_, about) in _OWN.items()}
    readmes = {
        name: metadata(name)["Summary"] or "" for name in sorted({"etdev", *found} - {"unknown"})
    }
    return {**own, **readmes}


def document(topic: str) -> str:
    """Return a document in Markdown, or in TOML for `registry`; a wheel has it in the package."""
    if topic not in _OWN:
        return metadata(topic)["Description"] or ""
    place, package = _OWN[topic][0], Path(__file__).parents[1]
    shipped = package / place
    return (shipped if shipped.exists() else package.parent / place).read_text(encoding="utf-8")


@click.command("docs", cls=Command)
@click.argument("topic", default="", required=False)
@options.as_json
@options.debug
def command(topic: str) -> None:
    """List the documents that are installed, or print one.

    \b
    etdev docs                 lists the topics
    etdev docs etdev           the README
    etdev docs registry        the manual of registry.toml
    etdev docs plugin | less   how to write a plugin

    Exit codes: 0 for success, 1 for an unknown topic, 2 for wrong usage.
    """
    known = _topics()
    if not topic:
        sheet = Sheet(("topic", "about"), list(known.items()))
        rows = [{"topic": name, "about": about} for name, about in known.items()]
        results.report(lambda: MANUAL.stamped({"topics": rows}), [sheet], every=True)
        return
    # A plugin's name, such as cpu, stands for its distribution.
    topic = topic if topic in known else f"etdev-{topic}"
    if topic not in known:
        what, cure = "is not a topic", close_to(topic.removeprefix("etdev-"), known)
        raise EtdevError(topic.removeprefix("etdev-"), what, cure or "see etdev docs")
    text = document(topic)
    if streams.results().isatty() and not options.given("as_json") and topic != "registry":
        Console(file=streams.results()).print(Markdown(text))
        return
    results.report(lambda: MANUAL.stamped({"topic": topic, "text": text}), [text])
