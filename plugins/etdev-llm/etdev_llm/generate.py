"""`etdev generate` generates tokens with a .pte that `etdev llm` wrote."""

from __future__ import annotations

import resource
import sys
from pathlib import Path
from typing import Any

import click

from etdev.cli import options, results
from etdev.cli.group import Command
from etdev.cli.progress import complain, working
from etdev.errors import EtdevError, RunError, first_line
from etdev.schema.documents import Document

GENERATED = Document("etdev.generated", 1)


def _tokens(_: object, __: object, text: str | None) -> list[int] | None:
    try:
        return [int(word) for word in text.split(",")] if text else None
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of token ids; write 1,2,3") from None


@click.command("generate", cls=Command)
@options.program
@click.option("--tokens", callback=_tokens, metavar="IDS", help="The prompt as ids: 1,2,3.")
@click.option("--prompt", metavar="TEXT", help="The prompt as text, with --tokenizer.")
@click.option("--tokenizer", metavar="FOLDER", help="Folder or hub id of its tokenizer.")
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, help="Tokens to generate."
)
@click.option("--check", metavar="SOURCE", help="Compare with this decoder, as etdev llm takes it.")
@click.option("--seed", default=0, show_default=True, help="Of the random weights of a config.")
@options.runner
@options.as_json
@options.debug
def command(  # noqa: PLR0913 - an argument for each option
    program: Path,
    tokens: list[int] | None,
    prompt: str | None,
    tokenizer: str | None,
    count: int,
    check: str | None,
    seed: int,
    runner: str | None,
) -> None:
    """Generate the most likely tokens with PROGRAM, made by etdev llm.

    Prints each token when it is known, then tokens per second of prefill and decode, and the
    peak memory of this process. --check compares tokens and logits at every step with PyTorch,
    which sees the whole sequence each time and has no cache. With --runner cpp the same calls are
    repeated in C++.

    \b
    etdev generate net.pte --tokens 1,2,3
    etdev generate net.pte --prompt "Once upon" --tokenizer ./llama --check ./llama
    etdev generate net.pte --tokens 1,2,3 --check ./llama --runner cpp

    Exit codes: 0 for success, 1 for an error or logits that differ, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    if (tokens is None) == (prompt is None) or (prompt is not None and not tokenizer):
        raise click.UsageError("give --tokens, or --prompt with --tokenizer")
    with working() as say:
        from etdev.runtime.runners import PYTHON, named
        from etdev_llm.export import tolerance_of
        from etdev_llm.playback import Player, compare, replayed

        decoder: Any = _tokenizer(tokenizer) if tokenizer else None
        ids = tokens or decoder.encode(prompt)
        player = Player(program)
        say("generate", str(program))
        if any(not 0 <= token < player.vocabulary for token in ids):
            raise RunError("prompt", f"{ids} has ids outside 0..{player.vocabulary - 1}", "")
        streams = not (options.given("as_json") or decoder)
        told = (lambda token: complain(str(token))) if streams else (lambda _: None)
        steps = player.generate(ids, count, told)
        if runner and runner != PYTHON.name:
            steps = replayed(program, steps, named(runner))
        errors = list[float]()
        if check:
            from etdev_llm.sources import load

            say("check", check)
            model = load(check, seed)
            errors = compare(model, steps, str(program), tolerance_of(model))
    found = [step.next for step in steps]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )
    first, rest = steps[0], sum(step.seconds for step in steps[1:])
    speed = {
        "prefill_per_s": round(len(ids) / first.seconds, 1),
        "decode_per_s": round((len(steps) - 1) / rest, 1) if rest else None,
    }
    text = decoder.decode(found) if decoder else ",".join(map(str, found))
    lines = [text, f"{program}: prefill {speed['prefill_per_s']} tokens/s"]
    if rest:
        lines.append(f"{program}: decode {speed['decode_per_s']} tokens/s")
    lines.append(f"{program}: peak memory {peak / 1e6:.0f} MB, with PyTorch")
    if errors:
        text = (
            f"{len(errors)} steps have the tokens and logits of PyTorch, within {max(errors):.1e}"
        )
        lines.append(f"{program}: verified: {text}")
    body: dict[str, Any] = {"program": str(program), "prompt": ids, "tokens": found, **speed}
    body |= {"peak_bytes": peak, "verified_steps": len(errors), "error": max(errors, default=None)}
    results.report(lambda: GENERATED.stamped(body), lines)


def _tokenizer(name: str) -> Any:
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        what = f"can't be loaded: {first_line(error)}"
        raise EtdevError(name, what, "give a folder with a tokenizer") from error
