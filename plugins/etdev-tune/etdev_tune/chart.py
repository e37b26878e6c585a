"""Chart of the candidates of a tuning by error and latency, for the page of `--html`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from etdev.app import size
from etdev.cli.viewing import Scatter
from etdev_tune.precision.recipe import FLOAT, PLUGIN, Recipe
from etdev_tune.report import Report, Trial


def candidates(report: Report) -> Scatter:
    """Return the chart of the candidates that ran, with the front marked."""
    points = [
        _point(number, trial, trial.name == report.chosen)
        for number, trial in enumerate(report.trials)
        if trial.latency_ms and trial.error is not None
    ]
    return Scatter("Candidates; the front is marked", ("error", "latency in ms"), points)


def _point(number: int, trial: Trial, chosen: bool) -> dict[str, Any]:
    assert trial.latency_ms
    return {
        "name": f"{number} (chosen)" if chosen else str(number),
        "x": trial.error,
        "y": trial.latency_ms.value,
        "text": "\n".join(_lines(trial)),
        "marked": trial.front,
    }


def _lines(trial: Trial) -> Iterator[str]:
    """Yield the figures of a candidate, its plugins, and the layers of each scheme."""
    yield trial.name
    yield f"error {trial.error:.2g}, {trial.latency_ms} ms, {size(trial.size_bytes)}"
    yield f"plugins: {', '.join(trial.plugins)}"
    recipe = Recipe.of_options(trial.options.get(PLUGIN, {}).get("layers", ()), ()).layers
    for scheme in dict.fromkeys(recipe.values()):
        yield f"{scheme}: {', '.join(layer for layer, own in recipe.items() if own == scheme)}"
    if recipe:
        yield f"{FLOAT}: every other layer"
