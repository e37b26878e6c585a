"""`etdev llm` writes a decoder of transformers as one .pte."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from attrs import define

from etdev.app import Command, Document, options, report, working
from etdev.errors import PluginError, SourceError

if TYPE_CHECKING:
    from etdev import Lowered, Lowerer
    from etdev.app import Verification
    from etdev.schema.target import Target
    from etdev_llm.comparison import Comparison
    from etdev_llm.perplexity import Evaluation
    from etdev_llm.sources import Recipe

LLM = Document("etdev.llm", 1)
# A longer text can't be the name of a file.
_NAME = 256
Limits = dict[str, dict[str, Any]]


def asked(texts: Sequence[str]) -> tuple[list[str] | None, Limits]:
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
@options.output
@click.option(
    "--max-length", type=click.IntRange(2), default=128, show_default=True,
    help="Tokens of the longest sequence, prompt and answer.",
)  # fmt: skip
@click.option(
    "--max-source", type=click.IntRange(2), metavar="N",
    help="Tokens of the longest source of an encoder-decoder; --max-length if left out.",
)  # fmt: skip
@click.option(
    "--batch", type=click.IntRange(1), default=1, show_default=True,
    help="Sequences of one length that are generated together.",
)  # fmt: skip
@click.option("--seed", default=0, show_default=True, help="Seed of a config's random weights.")
@click.option(
    "--dtype", type=click.Choice(["float32", "float16", "bfloat16"]),
    help="Type of the weights: float32 by default, or what a function returns.",
)  # fmt: skip
@click.option(
    "--quantize",
    type=click.Choice(["8da4w", "8da8w", "int8", "none"]),
    default="none",
    show_default=True,
    help="Quantise linear layers with torchao: 8da4w and 8da8w have activations of 8 bits and "
    "weights of 4 (in groups of 32) or 8 bits, int8 has weights of 8 bits only.",
)
@click.option(
    "--quantize-embedding",
    type=click.Choice(["4", "8", "none"]),
    default="none",
    show_default=True,
    help="Store the embeddings of tokens in 4 or 8 bits; rows are dequantised when they are read.",
)
@click.option(
    "--quantize-cache",
    type=click.Choice(["int8", "none"]),
    default="none",
    show_default=True,
    help="Keep keys and values in 8 bits, with a scale for each token and head.",
)
@click.option(
    "--single-method",
    is_flag=True,
    help="Write one method, forward, which ExecuTorch's TextLLMRunner calls.",
)
@click.option(
    "--plugin", "plugins", multiple=True, metavar="[METHOD=]NAME[,NAME]",
    help="Ask these plugins, in this order, for all methods or for one: prefill=NAME.",
)  # fmt: skip
@click.option(
    "--evaluate", metavar="TEXT",
    help="Print the perplexity of a text, or a file with one, in PyTorch and in the .pte, with "
    "the tokenizer of SOURCE.",
)  # fmt: skip
@options.no_verify
@options.runner
@options.target
@options.writing
@options.ruling
def command(  # noqa: PLR0913 - an argument for each option
    source: str,
    output: Path,
    max_length: int,
    max_source: int | None,
    batch: int,
    single_method: bool,
    plugins: Sequence[str],
    evaluate: str | None,
    no_verify: bool,
    runner: str | None,
    target: Target | None,
    **others: Any,
) -> None:
    """Lower a decoder or encoder-decoder of transformers to one .pte.

    SOURCE is a local folder or a hub id, a config.json (with random weights), or file.py:function,
    whose function returns the model. Both methods, prefill and decode, take token ids and the
    position of the first one, return the logits behind the last token, and share weights and cache.
    That of an encoder-decoder has encode, too, whose states prefill takes.
    Before it is written, generations are compared with PyTorch, logit by logit.

    \b
    etdev llm ./llama -o net.pte --max-length 256
    etdev llm ./llama -o net.pte --quantize 8da4w --quantize-embedding 4
    etdev llm ./llama -o net.pte --plugin prefill=openvino,cpu --plugin decode=cpu
    etdev llm ./llama -o net.pte --target pi
    etdev generate net.pte --tokens 1,2,3 --check ./llama

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    fields = ("seed", "dtype", "quantize", "quantize_embedding", "quantize_cache")
    recipe = {name: others.pop(name) for name in fields}
    # Neither a config.json nor file.py:function has one.
    recipe["tokenizer"] = "" if source.endswith(".json") or ":" in source else source
    names, limits = asked(plugins or (target.plugins if target else ()))
    if no_verify and (runner or target):
        raise click.UsageError("give --no-verify, or --runner and --target, not both")
    if batch > 1 and (single_method or evaluate):
        raise click.UsageError("--single-method and --evaluate take a --batch of 1")
    options.check_writing(output, None, plugins=names, **others)
    with working(runs=not no_verify) as say:
        from etdev.runtime.runners import on_target
        from etdev_llm.sources import Recipe

        facts = [each.facts for each in on_target(target, runner)] if target else []
        tokens = _tokens(source, evaluate) if evaluate else []
        job = _Job(
            source, Recipe(**recipe), max_length, max_source, batch, single_method, limits, say
        )
        written = options.write(
            say, output, job.lower,
            lambda _, path: None if no_verify else job.verify(path, runner, target),
            plugins=names, limits=limits, facts=facts, target=target, **others,
        )  # fmt: skip
        found = job.evaluated(output, tokens) if evaluate else None
    body = {**written.document(), "max_length": max_length, "error": None}
    body["perplexity"] = found and {"eager": found.eager, "file": found.file}
    lines = []
    if job.done:
        body["error"] = max(job.done.errors)
        lines = [f"{output}: {job.done.summary}", *job.costs(output)]
    lines += [f"{output}: {found}"] if found else []
    report(lambda: LLM.stamped(body), [*written.parts(), *lines])
    if not (options.given("quiet") or options.given("as_json")):
        given = "--source" if job.model.config.is_encoder_decoder else "--tokens"
        prompt = " ".join([f"{given} 1,2,3"] * batch)
        click.echo(f"next: etdev generate {output} {prompt} --check {source}", err=True)


def _tokens(source: str, text: str) -> list[int]:
    """Return the tokens of a text or of a file with one."""
    from etdev_llm.generate import tokenizer_of

    path = Path(text)
    known = path.read_text("utf-8") if len(text) < _NAME and path.is_file() else text
    return list(tokenizer_of(source).encode(known))


@define(eq=False)
class _Job:
    """A decoder on its way to a .pte, and the result of its verification."""

    source: str
    recipe: Recipe
    length: int
    source_length: int | None
    batch: int
    single: bool
    limits: Limits
    say: Any
    model: Any = None
    done: Comparison | None = None
    _plugins: Any = ()

    def lower(self, lowerer: Lowerer) -> Lowered:
        """Load the model, and lower its methods."""
        from etdev_llm.methods import LESS, generation

        with self.say.watch.stage("model", self.source):
            self.model = self.recipe.load(self.source)
            made = generation(
                self.model, self.length, self.single, self.recipe, self.source_length, self.batch
            )
        for name in {method for own in self.limits.values() for method in own["methods"]}:
            if name not in made.methods:
                cure = f"it has {', '.join(made.methods)}"
                raise PluginError("--plugin", f"the file has no method {name!r}", cure)
        self._plugins = lowerer.plugins
        try:
            return lowerer.lower(made.methods, settings=made.settings)
        except SourceError as error:
            name = type(self.model).__name__
            raise SourceError(f"{name}, method {error.who}", error.what, LESS) from error

    def costs(self, output: Path) -> list[str]:
        """Say what a cache of few bits saves, and what it costs."""
        if self.recipe.quantize_cache == "none":
            return []
        from etdev_llm.comparison import cost_of_int8

        bytes_, whole, error = cost_of_int8(self.model, self.length, self.batch)
        told = f"a cache of {bytes_} bytes in place of {whole}"
        return [f"{output}: {told}, which changes PyTorch's logits by up to {error:.1e}"]

    def evaluated(self, path: Path, tokens: Sequence[int]) -> Evaluation:
        """Compare the perplexity of a text with that of the model before it was quantised."""
        from etdev_llm.perplexity import evaluate
        from etdev_llm.sources import Recipe

        if self.model.config.is_encoder_decoder:
            raise SourceError("--evaluate", "takes no encoder-decoder", "leave it out")
        self.say("evaluate", f"{len(tokens)} tokens")
        whole = Recipe(self.recipe.seed, self.recipe.dtype, tokenizer=self.recipe.tokenizer)
        model = self.model if whole == self.recipe else whole.load(self.source)
        return evaluate(model, path, tokens)

    def verify(self, path: Path, runner: str | None, target: Target | None) -> Verification:
        """Repeat generations of PyTorch with a .pte, and compare each call."""
        from etdev.app import ProgramFile, Verification
        from etdev.runtime.runners import verifying
        from etdev_llm import comparison
        from etdev_llm.comparison import Comparison, all_calls, replayed

        self.say("verify", str(path.name))
        model = comparison.reference_of(self.model, self.recipe)
        wanted = all_calls(model, self.length, self.single, self.source_length, self.batch)
        done = Comparison(path.name, comparison.tolerance_of(self.model, self.recipe))
        runners = verifying(ProgramFile(path).artifact, self._plugins, runner, target)
        for each in runners:
            found, cache = replayed(path, wanted, each)
            done.compare(found, wanted)
            done.compare_cache(model, wanted, cache)
        self.done = done
        names = tuple(each.name for each in runners)
        return Verification(len(done.errors), done.tolerance, (), runners=names)
