"""`etdev llm` writes a decoder of transformers as one .pte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click

from etdev.cli import lowerers, options, results, tables
from etdev.cli.group import Command
from etdev.cli.progress import complain, working
from etdev.errors import PluginError
from etdev.files import check_program, publish, unseen
from etdev.schema.documents import Document
from etdev.schema.report.sheet import size

LLM = Document("etdev.llm", 1)
_STEPS = 4


def asked(texts: Sequence[str]) -> tuple[list[str] | None, dict[str, dict[str, Any]]]:
    """Return plugins in claim order, and for each that is not asked always, its methods.

    Args:
        texts: Names, `cpu`, or the plugins of one method, `prefill=openvino,cpu`.

    Raises:
        PluginError: Two methods have the same plugins in different orders.
    """
    order, methods = list[str](), dict[str, list[str]]()
    for text in texts:
        method, equals, names = text.rpartition("=")
        place = 0
        for name in names.split(","):
            if name not in order:
                order.insert(place if equals else len(order), name)
            elif equals and order.index(name) < place:
                cure = "name them in one order; a plugin's place is the same in all methods"
                raise PluginError("--plugin", f"{text} contradicts {', '.join(order)}", cure)
            place = order.index(name) + 1
            methods.setdefault(name, []).append(method)
    limits = {name: {"methods": own} for name, own in methods.items() if "" not in own}
    return order or None, limits


@click.command("llm", cls=Command)
@click.argument("source")
@click.option("-o", "--output", type=options.FILE, required=True, help="The .pte to write.")
@click.option(
    "--max-length", type=click.IntRange(2), default=128, show_default=True,
    help="Tokens of the longest sequence, prompt and answer.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Of the random weights of a config.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]), help="Of the weights."
)
@click.option("--single-method", is_flag=True, help="Write forward alone, for TextLLMRunner.")
@click.option(
    "--plugin", "plugins", multiple=True, metavar="[METHOD=]NAME[,NAME]",
    help="Ask these plugins, in this order; with METHOD= for prefill or decode only.",
)  # fmt: skip
@click.option("--no-verify", is_flag=True, help="Write it without running it.")
@options.runner
@options.as_json
@options.workers
@options.ruling
def command(  # noqa: PLR0913 - an argument for each option
    source: str,
    output: Path,
    max_length: int,
    seed: int,
    dtype: str | None,
    single_method: bool,
    plugins: Sequence[str],
    no_verify: bool,
    runner: str | None,
    jobs: int | None,
    on_failure: str | None,
    **lowering: Any,
) -> None:
    """Lower SOURCE, a decoder of transformers, to one .pte.

    SOURCE is a local folder or a hub id, a config.json (with random weights), or file.py:function,
    whose function returns the model. Both methods, prefill and decode, take token ids and the
    position of the first one, return the logits behind the last token, and share weights and cache.
    Before it is written, three generations are compared with PyTorch, logit by logit.

    \b
    etdev llm ./llama -o net.pte --max-length 256
    etdev llm ./llama -o net.pte --plugin prefill=openvino,cpu --plugin decode=cpu
    etdev generate net.pte --tokens 1,2,3 --check ./llama

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    check_program(output)
    names, limits = asked(plugins)
    lowerers.check(None, plugins=names, **lowering)
    with working(runs=not no_verify) as say:
        from etdev.pte.read import read
        from etdev.runtime.runners import verifying
        from etdev_llm.methods import generation
        from etdev_llm.playback import Player, compare, replayed
        from etdev_llm.sources import load

        with say.watch.stage("model", source):
            model = load(source, seed, dtype)
            made = generation(model, max_length, single_method)
        for name in {method for own in limits.values() for method in own["methods"]}:
            if name not in made.methods:
                cure = f"it has {', '.join(made.methods)}"
                raise PluginError("--plugin", f"the file has no method {name!r}", cure)
        lowerer = lowerers.lowerer(
            say, plugins=names, limits=limits, jobs=jobs, on_failure=on_failure, **lowering
        )
        lowered = lowerer.lower(made.methods, settings=made.settings)
        errors, runners = list[float](), list[str]()
        with unseen(output) as folder:
            written = lowered.save(folder / output.name)
            if not no_verify:
                say("verify", str(output))
                player = Player(written)
                steps = list[Any]()
                for prompt in prompts(model, max_length):
                    count = min(_STEPS, max_length - len(prompt) + 1)
                    steps += player.generate(prompt, count)
                tolerance = tolerance_of(model)
                errors = compare(model, steps, str(output), tolerance)
                for found in verifying(read(written), lowerer.plugins, runner):
                    errors += compare(
                        model, replayed(written, steps, found), str(output), tolerance
                    )
                    runners.append(found.name)
            publish((*written.parent.glob("*.ptd"), written), output)
    body = {"program": str(output), "size_bytes": output.stat().st_size, "max_length": max_length}
    lines = [f"{output}: {size(output.stat().st_size)}"]
    for method in lowered.plan.methods:
        lines.append(f"{output}: method {method.method}: {tables.shares(method)}")
    if errors:
        text = f"{len(errors)} calls in {', '.join(runners)} agree with PyTorch"
        lines.append(f"{output}: verified: {text}, logits within {max(errors):.1e}")
    else:
        lines.append(f"{output}: not verified: --no-verify")
    verified = {"calls": len(errors), "error": max(errors, default=None), "runners": runners}
    results.report(lambda: LLM.stamped({**body, "verification": verified}), lines)
    if not (options.given("quiet") or options.given("as_json")):
        complain(f"next: etdev generate {output} --tokens 1,2,3 --check {source}")


def prompts(model: Any, length: int) -> list[list[int]]:
    """Return prompts of one token, of seven, of all positions, and of seven again."""
    import torch

    numbers = torch.Generator().manual_seed(0)
    most = model.config.get_text_config().vocab_size
    sizes = (1, min(7, length), length, min(7, length))
    return [torch.randint(most, (n,), generator=numbers).tolist() for n in sizes]


def tolerance_of(model: Any) -> float:
    """Return the accepted error of logits, by the dtype of the weights."""
    import torch

    from etdev_llm.playback import TOLERANCE

    dtype = next(model.parameters()).dtype
    return TOLERANCE if dtype == torch.float32 else 16 * torch.finfo(dtype).eps
