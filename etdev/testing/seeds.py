"""Plans made in another process with another PYTHONHASHSEED."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Sequence
from typing import Any

from etdev.lowerer import Lowerer
from etdev.registry import Registry
from etdev.runtime.child import Child
from etdev.testing.programs import exported

# The seed of the hashes of text in that process.
SEED = "4711"


class Stays(Exception):
    """A plugin that can't be sent to another process; the text is the reason."""


def plans(plugin: object, kinds: Sequence[type]) -> dict[type, str]:
    """Plan programs in a process of its own.

    Args:
        plugin: The plugin that plans.
        kinds: Classes of `etdev.testing.programs`.

    Returns:
        The plan of each as JSON.

    Raises:
        Stays: The plugin can't be pickled, or not be made there.
    """
    try:
        # It comes with loky, and can send classes that a test module defines.
        import cloudpickle

        data = cloudpickle.dumps(plugin)
    except Exception as error:
        raise Stays(str(error)) from error
    child = Child("the plugin", {"PYTHONHASHSEED": SEED})
    try:
        outcome = child.run(_plans, data, kinds)
    finally:
        child.close()
    if outcome.failure is not None:
        raise Stays(outcome.failure)
    return dict(zip(kinds, outcome.values, strict=True))


def _plans(data: bytes, kinds: Sequence[type]) -> Iterator[str]:
    for kind in kinds:
        plugin: Any = pickle.loads(data)
        yield Lowerer([plugin], registry=Registry()).plan(exported(kind)).to_json()
