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
    from etdev_llm.sources import Recipe

LLM = Document("etdev.llm", 1)
_STEPS = 4
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
    "--single-method",
    is_flag=True,
    help="Write one method, forward, which ExecuTorch's TextLLMRunner calls.",
)
@click.option(
    "--plugin", "plugins", multiple=True, metavar="[METHOD=]NAME[,NAME]",
    help="Ask these plugins, in this order, for all methods or for one: prefill=NAME.",
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
    single_method: bool,
    plugins: Sequence[str],
    no_verify: bool,
    runner: str | None,
    target: Target | None,
    **others: Any,
) -> None:
    """Lower SOURCE, a decoder of transformers, to one .pte.

    SOURCE is a local folder or a hub id, a config.json (with random weights), or file.py:function,
    whose function returns the model. Both methods, prefill and decode, take token ids and the
    position of the first one, return the logits behind the last token, and share weights and cache.
    Before it is written, generations are compared with PyTorch, logit by logit.

    \b
    etdev llm ./llama -o net.pte --max-length 256
    etdev llm ./llama -o net.pte --quantize 8da4w --quantize-embedding 4
    etdev llm ./llama -o net.pte --plugin prefill=openvino,cpu --plugin decode=cpu
    etdev llm ./llama -o net.pte --target pi
    etdev generate net.pte --tokens 1,2,3 --check ./llama

    Exit codes: 0 when the file is written, 1 for an error, 2 for wrong usage.
    """  # noqa: D301 - click reads the escape
    recipe = {
        name: others.pop(name) for name in ("seed", "dtype", "quantize", "quantize_embedding")
    }
    names, limits = asked(plugins or (target.plugins if target else ()))
    if no_verify and (runner or target):
        raise click.UsageError("give --no-verify, or --runner and --target, not both")
    options.check_writing(output, None, plugins=names, **others)
    with working(runs=not no_verify) as say:
        from etdev_llm.sources import Recipe

        job = _Job(source, Recipe(**recipe), max_length, single_method, limits, say)
        written = options.write(
            say, output, job.lower,
            lambda _, path: None if no_verify else job.verify(path, runner, target),
            plugins=names, limits=limits, **others,
        )  # fmt: skip
    body = {**written.document(), "max_length": max_length, "error": None}
    lines = []
    if job.done:
        body["error"] = max(job.done.errors)
        lines = [f"{output}: {job.done.summary}"]
    report(lambda: LLM.stamped(body), [*written.parts(), *lines])
    if not (options.given("quiet") or options.given("as_json")):
        click.echo(f"next: etdev generate {output} --tokens 1,2,3 --check {source}", err=True)


@define(eq=False)
class _Job:
    """A decoder on its way to a .pte, and the result of its verification."""

    source: str
    recipe: Recipe
    length: int
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
            made = generation(self.model, self.length, self.single, self.recipe)
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

    def verify(self, path: Path, runner: str | None, target: Target | None) -> Verification:
        """Repeat generations of PyTorch with a .pte, and compare each call."""
        from etdev.app import ProgramFile, Verification
        from etdev.runtime.runners import verifying
        from etdev_llm import comparison
        from etdev_llm.comparison import Comparison, generated, replayed

        self.say("verify", str(path.name))
        wanted = comparison.across(self.model, self.length, self.single)
        # The last prompt is short: the cache behind it holds rows of longer ones.
        for prompt in comparison.prompts(self.model, self.length):
            count = min(_STEPS, self.length - len(prompt) + 1)
            wanted += generated(self.model, prompt, count, self.single)
        done = Comparison(path.name, comparison.tolerance_of(self.model, self.recipe))
        runners = verifying(ProgramFile(path).artifact, self._plugins, runner, target)
        for each in runners:
            found, cache = replayed(path, wanted, each)
            done.compare(found, wanted)
            done.compare_cache(self.model, wanted, cache)
        self.done = done
        names = tuple(each.name for each in runners)
        return Verification(len(done.errors), done.tolerance, (), runners=names)
