"""Comparison of generations with eager PyTorch, step by step."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from attrs import define, evolve, field
from transformers import DynamicCache

from etdev.app import ProgramFile
from etdev.errors import RunError, VerifyError
from etdev.runtime.child import LIMIT_S
from etdev.runtime.runners import Runner
from etdev_llm import methods
from etdev_llm.caches import convolved, naming, plain_token, quantised
from etdev_llm.encoder_decoder import ENCODE, Heard, sources_of
from etdev_llm.methods import CACHE, DECODE, PREFILL, SINGLE
from etdev_llm.player import Step, Token, inputs_of
from etdev_llm.positions import boundaries
from etdev_llm.sources import Recipe

# Accepted errors of logits, relative to the largest: of float32, and of scales that XNNPACK rounds.
TOLERANCE, _ROUNDED = 1e-4, 2e-2
# An activation of 8 bits is rounded to either of two steps, and later layers follow. Noise of this
# size in the embeddings changes PyTorch's own logits, too; this many times as much is accepted.
_NOISE, _MARGIN, _DRAWS, _TOKENS = 1e-5, 1.5, 4, 64
# Calls of each generation that a file is verified with.
_STEPS = 4
# The dimensions of keys and values, which have rows by position.
_ROWS = 4


def tolerance_of(model: Any, recipe: Recipe) -> float:
    """Return the accepted error of logits, by the dtype of the weights and their quantisation."""
    if recipe.quantize_cache == "int8":
        # A value of the cache that lies between two steps is rounded to either.
        return tolerance_of(model, evolve(recipe, quantize_cache="none")) + 1 / 127
    least = TOLERANCE if model.dtype == torch.float32 else 16 * torch.finfo(model.dtype).eps
    if recipe.quantize == "8da4w" and recipe.scales != "bfloat16":
        least = max(least, _ROUNDED)
    return max(least, _MARGIN * noise_of(model)) if recipe.quantize.startswith("8da") else least


class Rounded:
    """A decoder whose keys and values are those that a cache in 8 bits has; it keeps none.

    Args:
        model: The decoder.
    """

    def __init__(self, model: Any) -> None:
        self.model, self.config, self.dtype = model, model.config, model.dtype

    def __call__(self, input_ids: torch.Tensor, use_cache: bool = True) -> Any:
        """Return the outputs of the model, with the cache."""
        cache = DynamicCache(config=self.config.get_text_config())
        for layer in (own for own in cache.layers if hasattr(own, "update")):
            layer.update = partial(_rounding, layer.update)
        return self.model(input_ids=input_ids, past_key_values=cache, use_cache=True)


def _rounding(update: Any, *states: Any, **more: Any) -> Any:
    """Update a layer of a cache with keys and values of 8 bits."""
    pairs = (quantised(own) for own in states[:2])
    return update(*(values * scale for values, scale in pairs), *states[2:], **more)


def reference_of(model: Any, recipe: Recipe) -> Any:
    """Return what a file is compared with: a decoder, rounded as its cache is."""
    return Rounded(model) if recipe.quantize_cache == "int8" else model


@torch.no_grad()
def cost_of_int8(model: Any, length: int, batch: int = 1) -> tuple[int, int, float]:
    """Return what a cache in 8 bits is, as PyTorch computes it.

    Returns:
        Its bytes, the bytes of the one in float, and the largest change of the logits, relative to
        the largest, over prompts of up to 64 tokens and a token behind each.
    """
    length = min(length, getattr(model.config, "max_position_embeddings", None) or length)
    step, plain = (methods.Step(model, length, int8, batch).eval() for int8 in (True, False))
    error = 0.0
    for prompt in prompts(model, min(length, _TOKENS) - 1, batch):
        for tokens, start in ((prompt, 0), (prompt[:1], len(prompt))):
            found, true = (own(*inputs_of(tokens, start)) for own in (step, plain))
            error = max(error, float((found - true).abs().max() / true.abs().max()))
    return step.cache.size_bytes, plain.cache.size_bytes, error


@torch.no_grad()
def noise_of(model: Any) -> float:
    """Return the largest change of PyTorch's logits by small noise in the embeddings."""
    random = torch.Generator().manual_seed(0)
    known = getattr(model.config.get_text_config(), "max_position_embeddings", None) or _TOKENS
    tokens = torch.tensor([prompts(model, min(_TOKENS, known))[2]])

    def disturb(_: Any, __: Any, rows: torch.Tensor) -> torch.Tensor:
        size = max(_NOISE, 4 * torch.finfo(rows.dtype).eps)
        return rows * (1 + size * torch.randn(rows.shape, generator=random)).to(rows.dtype)

    exact = model(input_ids=tokens).logits
    with model.get_input_embeddings().register_forward_hook(disturb):
        draws = [model(input_ids=tokens).logits - exact for _ in range(_DRAWS)]
    return max(float((draw.abs().amax(-1) / exact.abs().amax(-1)).max()) for draw in draws)


def prompts(model: Any, length: int, batch: int = 1) -> list[list[Token]]:
    """Return prompts of one token, of seven, of all positions, and of seven again."""
    numbers = torch.Generator().manual_seed(0)
    sizes = (1, min(7, length), length, min(7, length))
    return [_drawn(model, n, batch, numbers) for n in sizes]


def _drawn(model: Any, count: int, batch: int, numbers: torch.Generator) -> list[Token]:
    config = model.config.get_text_config()
    drawn = torch.randint(config.vocab_size, (count, batch), generator=numbers)
    # No prompt has a token that pads.
    drawn[drawn == getattr(config, "pad_token_id", None)] = plain_token(model)
    return [tuple(row) if batch > 1 else row[0] for row in drawn.tolist()]


def generated(model: Any, prompt: Sequence[Token], count: int, single: bool = False) -> list[Step]:
    """Return the calls of a generation by eager PyTorch, each token the most likely one."""
    known, done, steps = list(prompt), 0, list[Step]()
    more = (model.states,) if isinstance(model, Heard) else ()
    for _ in range(count):
        method = SINGLE if single else DECODE if done else PREFILL
        own, logits = () if done else more, _logits(model, known)
        steps.append(Step(method, tuple(known[done:]), done, logits, 0.0, more=own))
        done = len(known)
        known.append(steps[-1].next)
    return steps


def across(model: Any, length: int, single: bool = False, batch: int = 1) -> list[Step]:
    """Return the calls of eager PyTorch around each limit that its configuration names.

    A generation steps across the limit, and prompts end before, at and behind it.
    """
    found, numbers = list[Step](), torch.Generator().manual_seed(1)
    for edge in boundaries(model.config, length):
        prompt = _drawn(model, edge - 1, batch, numbers)
        steps = generated(model, prompt, min(3, length - edge + 2), single)
        # Without a cache, PyTorch's logits don't depend on where a prompt ends.
        longer = [
            evolve(step, method=steps[0].method, tokens=tuple(known), start=0, more=steps[0].more)
            for step, known in zip(steps, _sequences(steps), strict=True)
        ]
        found += [*steps, *longer[1:]]
    return found


def all_calls(
    model: Any,
    length: int,
    single: bool = False,
    source_length: int | None = None,
    batch: int = 1,
) -> list[Step]:
    """Return the calls of eager PyTorch that a file is verified with.

    They are generations around each limit and of several prompts, the last one a short one: the
    cache behind it holds rows of longer ones. An encoder-decoder has them for two sources.
    """
    if not isinstance(model, Heard) and model.config.is_encoder_decoder:
        known = [Heard(model, own) for own in sources_of(model, source_length or length)]
        return [
            step
            for own in known
            for step in (
                Step(ENCODE, (), 0, own.states, 0.0, more=(own.source,)),
                *all_calls(own, length),
            )
        ]
    found = across(model, length, single, batch)
    for prompt in prompts(model, length, batch):
        found += generated(model, prompt, min(_STEPS, length - len(prompt) + 1), single)
    return found


def expected(model: Any, steps: Sequence[Step]) -> list[Step]:
    """Return the same calls with the logits of eager PyTorch."""
    pairs = zip(steps, _sequences(steps), strict=True)
    return [evolve(step, logits=_logits(model, known)) for step, known in pairs]


def replayed(
    path: Path, steps: Sequence[Step], runner: Runner
) -> tuple[list[Step], list[torch.Tensor]]:
    """Repeat calls in another runtime, all in one loaded program.

    Returns:
        The calls as they were there, and the cache after the last one.

    Raises:
        RunError: The runtime fails.
    """
    calls: list[Any] = [(step.method, step.inputs) for step in steps]
    program = ProgramFile(path).runnable(share_arenas=True)
    outcome = runner.call(program, [*calls, (CACHE, ())], 0, LIMIT_S)
    if outcome.failure:
        raise RunError(str(path), f"{runner.name} failed: {outcome.failure}", "see etdev check")
    *results, last = outcome.values
    found = [
        evolve(step, logits=result.outputs[0], seconds=result.median_ms / 1000)
        for step, result in zip(steps, results, strict=True)
    ]
    return found, list(last.outputs)


@define
class Comparison:
    """Calls compared with those of eager PyTorch, which has no cache and sees the whole sequence.

    Args:
        who: The program, for errors.
        tolerance: The accepted error.
        errors: The error of each step's logits, relative to their largest value.
        equal: The number of steps with the same most likely token.
        cache_error: The largest error of keys and values.
    """

    who: str
    tolerance: float = TOLERANCE
    errors: list[float] = field(factory=list)
    equal: int = 0
    cache_error: float = 0.0

    @property
    def summary(self) -> str:
        """The number of equal tokens and the largest errors in words."""
        errors = f"logits within {max(self.errors):.1e}, cache within {self.cache_error:.1e}"
        return f"{self.equal} of {len(self.errors)} tokens equal, {errors}"

    def compare(self, steps: Sequence[Step], wanted: Sequence[Step]) -> None:
        """Compare calls.

        Raises:
            VerifyError: Logits differ by more than the tolerance, or in float32 another token is
                most likely.
        """
        for number, (step, true) in enumerate(zip(steps, wanted, strict=True)):
            where = f"the logits of step {number} ({step.method})"
            self.errors.append(self._error(where, step.logits, true.logits))
            same = step.likeliest == true.likeliest or not step.tokens
            self.equal += same
            if not same and self.tolerance <= TOLERANCE:
                what = f"step {number} gave token {step.likeliest} instead of {true.likeliest}"
                raise VerifyError(self.who, what, "its logits agree, and two are nearly equal")
        if not self.errors:
            raise VerifyError(self.who, "no step was compared", "generate one token or more")

    def compare_cache(self, model: Any, steps: Sequence[Step], cache: Sequence[Any]) -> None:
        """Compare the rows of the last generation with those of eager PyTorch's cache.

        Raises:
            VerifyError: Keys or values of a layer differ by more than the tolerance.
        """
        *_, known = _sequences(steps)
        if heard := [step.more[0] for step in steps if step.method == ENCODE]:
            model = Heard(model, heard[-1])
        with torch.no_grad():
            ids, _ = inputs_of(known, 0)
            layers = model(input_ids=ids, use_cache=True).past_key_values.layers
        wanted = [pair for number, layer in enumerate(layers) for pair in _state(number, layer)]
        for found, (name, true) in zip(cache, wanted, strict=True):
            if found.dim() == _ROWS:
                # A sliding window has the last rows only.
                found = found[:, :, len(known) - true.shape[2] : len(known)]
            self.cache_error = max(self.cache_error, self._error(name, found, true))

    def _error(self, where: str, found: torch.Tensor, wanted: torch.Tensor) -> float:
        found, wanted = found.float(), wanted.float()
        if found.shape != wanted.shape or not bool(found.isfinite().all()):
            what = f"{where} have the shape {tuple(found.shape)}, or values that are not finite"
            raise VerifyError(self.who, what, "report it with the model's config")
        # Each sequence of a batch by itself.
        largest = wanted.abs().flatten(1).amax(1).clamp_min(1e-30)
        error = float(((found - wanted).abs().flatten(1).amax(1) / largest).max())
        if not error <= self.tolerance:
            what = f"{where} differ by {error:.1e}"
            cure = f"find the delegate with --plugin, or accept {error:.0e}"
            raise VerifyError(self.who, what, cure)
        return error


def _state(number: int, layer: Any) -> list[tuple[str, torch.Tensor]]:
    """Return what a layer of eager PyTorch's cache keeps, each with its name."""
    if (inputs := convolved(layer)) is not None:
        return [(f"the inputs of the convolution of cache {number}", inputs)]
    # Layers that read another layer's cache have none of their own.
    found = [(name, getattr(layer, name, None)) for name in ("keys", "values")]
    return [(f"the {name} of cache {number}", value) for name, value in found if value is not None]


def _sequences(steps: Sequence[Step]) -> Iterator[list[Token]]:
    """Yield all tokens that are known after each step."""
    known = list[Token]()
    for step in steps:
        known = [*known[: step.start], *step.tokens]
        yield known


@torch.no_grad()
def _logits(model: Any, tokens: Sequence[Token]) -> torch.Tensor:
    what, cure = f"can't be called with {len(tokens)} tokens", "repair it in PyTorch first"
    with naming(type(model).__name__, what, cure):
        logits: torch.Tensor = model(input_ids=inputs_of(tokens, 0)[0]).logits[:, -1]
    return logits
