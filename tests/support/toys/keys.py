"""The keys under which the cache has a model's partitions."""

import os
from collections.abc import Sequence
from typing import Any

from etdev import Lowerer
from etdev.delegate.cache.digests import Digests
from etdev.delegate.cache.key import name_of
from etdev.delegate.compiler_calls import batches, calls_of
from etdev.lowering.lowering import Lowering
from etdev.registry import answers


def keys(
    model: Any,
    inputs: Any = None,
    plugins: Sequence[Any] = ("cpu",),
    change: Any = None,
    **given: Any,
) -> list[str]:
    """The keys of a model's partitions; `change` gets each program before it is looked at."""
    lowerer = Lowerer(list(plugins))
    return keys_of(lowerer, lowerer.decide(model, inputs, **given), change)


def keys_of(lowerer: Lowerer, decided: Lowering, change: Any = None) -> list[str]:
    """The keys of what was decided."""
    composition = lowerer.composition
    splits = [composition.split(p, decided.plan[name]) for name, p in decided.programs.items()]
    plugins, texts = {plugin.name: plugin for plugin in composition.plugins}, []
    for batch in batches(splits):
        plugin = plugins[batch[0].partition.plugin]
        before = dict(os.environ)
        with answers.compile_context(plugin, batch[0].partition.device):
            settled = {k: v for k, v in os.environ.items() if before.get(k) != v}
            for call in calls_of(batch, plugin):
                for job in call.jobs:
                    if change:
                        change(job.program)
                texts.append(name_of(call, settled, Digests()).key)
    return texts
