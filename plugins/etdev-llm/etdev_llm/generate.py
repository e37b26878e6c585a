"""`etdev generate` generates tokens with a .pte that `etdev llm` wrote."""

from __future__ import annotations

import sys
from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import evolve

from etdev.app import Command, Document, options, report, working
from etdev.errors import EtdevError, RunError, first_line

if TYPE_CHECKING:
    from etdev.runtime.runners import Runner
    from etdev.schema.target import Target
    from etdev_llm.comparison import Comparison
    from etdev_llm.player import Player, Step, Token

GENERATED = Document("etdev.generated", 1)


def _ids(text: str) -> list[int]:
    try:
        return [int(word) for word in text.split(",")]
    except ValueError:
        raise click.BadParameter(f"{text!r} is not a list of token ids; write 1,2,3") from None


def _tokens(_: object, __: object, texts: Sequence[str]) -> list[list[int]]:
    return [_ids(text) for text in texts]


@click.command("generate", cls=Command)
@options.program
@click.option(
    "--tokens", callback=_tokens, multiple=True, metavar="IDS",
    help="Prompt as token ids: 1,2,3; one for each sequence of a batch.",
)  # fmt: skip
@click.option(
    "--source", metavar="IDS|FILE",
    help="Source of an encoder-decoder: token ids, or features in an .npy file.",
)  # fmt: skip
@click.option("--prompt", multiple=True, metavar="TEXT", help="Prompt as text, likewise.")
@click.option(
    "--tokenizer", metavar="FOLDER",
    help="Folder or hub id of the model's tokenizer, if it isn't that of etdev llm's SOURCE.",
)  # fmt: skip
@click.option(
    "--count", type=click.IntRange(1), default=20, show_default=True, help="Tokens to generate."
)
@click.option(
    "--chat", is_flag=True, help="Put the prompt into the tokenizer's chat template, as a user's."
)
@click.option(
    "--temperature",
    type=click.FloatRange(0),
    default=0.0,
    show_default=True,
    help="Choose tokens at random, the more so the larger it is; 0 takes the most likely one.",
)
@click.option(
    "--top-k", type=click.IntRange(0), default=0, help="Among this many tokens only; 0 for all."
)
@click.option(
    "--top-p",
    type=click.FloatRange(0, 1, min_open=True),
    default=1.0,
    help="Among the most likely tokens with this much probability together.",
)
@click.option("--random-seed", type=int, default=0, help="Seed of the choice.")
@click.option(
    "--no-stop", is_flag=True, help="Go on behind a token that ends a text, such as </s>."
)
@click.option(
    "--check",
    metavar="SOURCE",
    help="Compare each step with this decoder in PyTorch; SOURCE as for etdev llm.",
)
@click.option(
    "--seed", type=int, help="Seed of a config's random weights, if not that of etdev llm."
)
@options.runner
@options.target
@options.as_json
@options.debug
def command(  # noqa: PLR0913 - an argument for each option
    program: Path,
    tokens: list[list[int]],
    source: str | None,
    prompt: Sequence[str],
    tokenizer: str | None,
    count: int,
    chat: bool,
    temperature: float,
    top_k: int,
    top_p: float,
    random_seed: int,
    no_stop: bool,
    check: str | None,
    seed: int | None,
    runner: str | None,
    target: Target | None,
) -> None:
    """Generate tokens or text with PROGRAM, made by etdev llm.

    Each is the most likely one, or drawn with --temperature; it ends with a token that ends a text.
    Prints each when it is known, then tokens per second of prefill and decode, and the
    peak memory of this process. --check compares tokens and logits at every step with PyTorch,
    which sees the whole sequence each time and has no cache. With --runner cpp the same calls are
    repeated in C++, and with --target there.

    \b
    etdev generate net.pte --tokens 1,2,3
    etdev generate net.pte --prompt "Once upon" --check ./llama
    etdev generate net.pte --prompt "Hello" --chat --temperature 0.8 --top-p 0.9
    etdev generate two.pte --tokens 1,2,3 --tokens 4,5,6
    etdev generate whisper.pte --source sound.npy
    etdev generate net.pte --tokens 1,2,3 --check ./llama --runner cpp

    Exit codes: 0 for success, 1 for an error or logits that differ, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    if (bool(tokens) or source is not None) == bool(prompt):
        raise click.UsageError("give --tokens or --prompt")
    if chat and not prompt:
        raise click.UsageError("--chat needs --prompt")
    with working() as say:
        from etdev_llm.player import Player, rows_of
        from etdev_llm.sampling import Sampling

        player = Player(program)
        if prompt:
            tokenizer = tokenizer or player.recipe.tokenizer
            if not tokenizer:
                raise EtdevError(str(program), "names no tokenizer", "give --tokenizer")
        decoder: Any = tokenizer_of(tokenizer) if tokenizer else None
        rows = tokens or [_encoded(decoder, text, chat) for text in prompt]
        say("generate", str(program))
        told = (lambda _: None) if options.given("as_json") else _telling(decoder, player)
        chosen, sampling = _runner(runner, target), Sampling(temperature, top_k, top_p, random_seed)
        _hear(player, source)
        ids = _prompt(player, rows or [[n for n in [player.first] if n is not None]])
        ends = () if no_stop else player.ends
        steps, cache = _steps(player, ids, count, chosen, told=told, sampling=sampling, ends=ends)
        if decoder and not options.given("as_json"):
            click.echo(err=True)
        checked = None
        if check:
            say("check", check)
            if seed is not None:
                player.recipe = evolve(player.recipe, seed=seed)
            checked = _checked(player, steps, cache, check, chosen)
    found = [_to_end(row, ends) for row in rows_of([step.next for step in steps])]
    speed, peak = {} if getattr(chosen, "emulated", False) else _speed(steps), _peak()
    texts = [decoder.decode(row) if decoder else ",".join(map(str, row)) for row in found]
    lines = [*texts, *(f"{program}: {name} {value} tokens/s" for name, value in speed.items())]
    lines += [f"{program}: peak memory {peak / 1e6:.0f} MB, with PyTorch"] if peak else []
    given, made = (own if player.batch > 1 else own[0] for own in (rows_of(ids), found))
    body: dict[str, Any] = {"program": str(program), "prompt": given, "tokens": made}
    body |= {f"{name}_per_s": speed.get(name) for name in ("prefill", "decode")}
    body |= {"peak_bytes": peak, "verified_steps": 0, "error": None}
    if checked:
        error = max(checked.errors)
        body |= {"verified_steps": len(checked.errors), "error": error}
        lines.append(f"{program}: verified against PyTorch: {checked.summary}")
    report(lambda: GENERATED.stamped(body), lines)


def _prompt(player: Player, rows: list[list[int]]) -> list[Token]:
    """Return the prompt, in a batch the tokens of all sequences at each position."""
    if len(rows) != player.batch:
        what = f"generates {player.batch} sequences together, and {len(rows)} prompts are given"
        raise RunError(str(player.path), what, "give --tokens or --prompt for each")
    if len(sizes := {len(row) for row in rows}) > 1:
        what = f"has sequences of {min(sizes)} to {max(sizes)} tokens"
        raise RunError("prompt", what, "give all as many, since one position counts for all")
    return list(rows[0]) if player.batch == 1 else list(zip(*rows, strict=True))


def _to_end(row: list[int], ends: Collection[int]) -> list[int]:
    """Return a sequence up to a token that ends it; others of its batch may have gone on."""
    return row[: next((n for n, token in enumerate(row, 1) if token in ends), len(row))]


def _telling(tokenizer: Any, player: Player) -> Callable[[Any], None]:
    """Return a function that prints tokens when they are known: numbers, or the text of one row."""
    known, told = list[int](), ""

    def tell(token: int) -> None:
        nonlocal told
        known.append(token)
        text = tokenizer.decode(known)
        # A character may have several tokens.
        if not text.endswith("\ufffd"):
            click.echo(text[len(told) :], err=True, nl=False)
            told = text

    if player.batch > 1:
        return lambda tokens: click.echo(",".join(map(str, tokens)), err=True)
    return tell if tokenizer else lambda token: click.echo(token, err=True)


def _runner(name: str | None, target: Target | None) -> Runner:
    """Return the runner that repeats the calls; Python's repeats none."""
    from etdev.runtime.runners import PYTHON, named, on_target

    return on_target(target, name)[-1] if target else named(name or PYTHON.name)


def _hear(player: Player, source: str | None) -> None:
    """Give an encoder-decoder its source."""
    import numpy as np
    import torch

    if player.hears != (source is not None):
        cure = "give it --source" if player.hears else "leave out --source"
        what = "is an encoder-decoder" if player.hears else "is a decoder without a source"
        raise RunError(str(player.path), what, cure)
    if source and source.endswith(".npy"):
        player.hear(torch.from_numpy(np.load(source)))
    elif source:
        player.hear(torch.tensor([_ids(source)]))


def _encoded(tokenizer: Any, prompt: str, chat: bool) -> list[int]:
    """Return the tokens of a prompt, in the tokenizer's chat template if it is asked for."""
    if not chat:
        return list(tokenizer.encode(prompt))
    try:
        message = [{"role": "user", "content": prompt}]
        text = tokenizer.apply_chat_template(message, add_generation_prompt=True, tokenize=False)
    except Exception as error:
        what = f"has no chat template that takes it: {first_line(error)}"
        raise EtdevError("--chat", what, "leave it out") from error
    return list(tokenizer.encode(text, add_special_tokens=False))


def _steps(
    player: Player, ids: list[Token], count: int, runner: Runner, **how: Any
) -> tuple[list[Step], list[Any]]:
    """Generate here, and repeat the calls in another runtime if one is asked for."""
    from etdev.runtime.runners import PYTHON
    from etdev_llm.comparison import replayed
    from etdev_llm.player import rows_of

    given = {token for row in rows_of(ids) for token in row}
    if wrong := sorted(token for token in given if not 0 <= token < player.vocabulary):
        what = f"has the ids {', '.join(map(str, wrong))}, which the model has no tokens for"
        raise RunError("prompt", what, f"give 0 to {player.vocabulary - 1}")
    steps = player.generate(ids, count, **how)
    return replayed(player.path, steps, runner) if runner is not PYTHON else (steps, player.cache())


def _checked(
    player: Player,
    steps: list[Step],
    cache: list[Any],
    source: str,
    runner: Runner,
) -> Comparison:
    """Compare each step, the cache after the last one, and calls around the limits of a model."""
    from etdev_llm.comparison import (
        Comparison,
        across,
        expected,
        reference_of,
        replayed,
        tolerance_of,
    )
    from etdev_llm.encoder_decoder import Heard

    model = player.recipe.load(source)
    if player.source is not None:
        model = Heard(model, player.source)
    done = Comparison(str(player.path), tolerance_of(model, player.recipe))
    model = reference_of(model, player.recipe)
    done.compare(steps, expected(model, steps))
    done.compare_cache(model, steps, cache)
    if wanted := across(model, player.length, player.single, player.batch):
        found, _ = replayed(player.path, wanted, runner)
        done.compare(found, wanted)
    return done


def _speed(steps: list[Step]) -> dict[str, float]:
    """Return the tokens per second of the prompt, and of the tokens behind the first one."""
    first, rest = steps[0], sum(step.seconds for step in steps[1:])
    rows = len(first.logits)
    speed = {"prefill": round(rows * len(first.tokens) / first.seconds, 1)}
    return {**speed, "decode": round(rows * (len(steps) - 1) / rest, 1)} if rest else speed


def _peak() -> int | None:
    """Return the most memory that this process had, in bytes; None on Windows."""
    try:
        import resource
    except ImportError:
        return None
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def tokenizer_of(name: str) -> Any:
    """Return the tokenizer of a folder or hub id.

    Raises:
        EtdevError: It has none.
    """
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(name)
    except Exception as error:
        what = f"has no tokenizer that can be loaded: {first_line(error)}"
        raise EtdevError(name, what, "give a folder with a tokenizer") from error
