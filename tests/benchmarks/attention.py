"""A decoder's attention against ExecuTorch's fused `custom_sdpa`: a token, by length of the cache.

PYTHONPATH=tests python -m benchmarks.attention [--hidden 512 --layers 8] [--lengths 128 1024 4096]

`custom_sdpa` is the attention of `sdpa_with_kv_cache`. Both decoders are lowered by etdev with the
same weights, and called in turn in one process with one thread. Logits of the first tokens are
compared with PyTorch's. The token is at the last position of a full cache, and at an eighth of it:
the fused op reads the rows up to the token's, etdev's attention reads all.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import executorch.extension.llm.custom_ops.custom_ops  # noqa: F401 - registers llama::custom_sdpa
import torch
from benchmarks import record
from benchmarks.latency import in_turn
from benchmarks.llm import begin
from etdev_llm import methods
from etdev_llm.caches import Buffers, Layer
from executorch.runtime import Runtime
from transformers import AttentionInterface, AutoConfig, AutoModelForCausalLM
from transformers.masking_utils import AttentionMaskInterface

from etdev import Lowerer

FUSED = "custom_sdpa"
ROUNDS, CHECKED = 7, 64


class FusedLayer(Layer):
    """Rows of a layer as `custom_sdpa` takes them, (1, rows, heads, size)."""

    def update(self, keys: Any, values: Any, *_: Any, **__: Any) -> tuple[Any, Any]:
        """Write the rows of new tokens, and return all rows."""
        positions = torch.arange(keys.shape[2]) + self.cumulative_length
        for rows, new in ((self.keys, keys), (self.values, values)):
            rows.index_copy_(1, positions, new.transpose(1, 2))
        return self.keys, self.values


class FusedBuffers(Buffers):
    """The buffers of a cache, with tokens before heads."""

    def __init__(self, layers: Any, length: int) -> None:
        super().__init__(layers, length)
        for name, rows in self.named_buffers():
            setattr(self, name, rows.transpose(1, 2).contiguous())

    def _layer(self, index: int, start: torch.Tensor) -> Any:
        keys, values = (getattr(self, f"{name}_{index}") for name in ("keys", "values"))
        return FusedLayer(keys, values, start, False)


class FusedStep(methods.Step):
    """A decoder whose attention is `custom_sdpa`."""

    def __init__(self, model: Any, length: int) -> None:
        super().__init__(model, length)
        layers = methods.filled(self.model)
        self.cache = FusedBuffers(layers, length)
        self.model.set_attn_implementation(FUSED)

    def forward(self, tokens: torch.Tensor, start: torch.Tensor) -> torch.Tensor:
        """Return the logits behind the last token."""
        first = start.item()
        torch._check(first >= 0)
        torch._check(first < self.length)
        for module in self.model.modules():
            module.first = first
        return super().forward(tokens, start)


def fused(
    module: Any, query: Any, key: Any, value: Any, mask: Any, scaling: float | None = None, **_: Any
) -> tuple[Any, None]:
    """Return the output of attention over all rows up to the token's own, and no weights."""
    attend = torch.ops.llama.custom_sdpa
    query = query.transpose(1, 2)
    return attend(query, key, value, module.first, None, 0.0, True, scaling), None


AttentionInterface.register(FUSED, fused)
AttentionMaskInterface.register(FUSED, lambda *_, **__: None)


def decoder(options: Any, length: int) -> Any:
    """Return a random Llama."""
    torch.manual_seed(0)
    config = AutoConfig.for_model(
        "llama", vocab_size=options.vocabulary, hidden_size=options.hidden,
        intermediate_size=options.hidden * 8 // 3 // 32 * 32, num_hidden_layers=options.layers,
        num_attention_heads=8, num_key_value_heads=4, max_position_embeddings=length,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(config).eval()


def lowered(step: Any, folder: Path) -> Any:
    """Return the decode method of a decoder as a loaded program."""
    name, inputs = type(step).__name__, (torch.tensor([[1]]), torch.tensor([1]))
    made = {name: (step.eval(), inputs)}
    path = Lowerer(["cpu"], cache=False).lower(made).save(folder / f"{name}.pte")
    program = Runtime.get().load_program(path)
    return program, program.load_method(name)


def _call(method: Any, tokens: torch.Tensor, at: int) -> torch.Tensor:
    logits: torch.Tensor = method.execute([tokens[at].view(1, 1), torch.tensor([at])])[0]
    return logits


@torch.no_grad()
def measure(options: Any, length: int) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds of a token in a cache of a length, each the least of all rounds."""
    model = decoder(options, length)
    with tempfile.TemporaryDirectory() as folder:
        kinds = {"etdev": methods.Step, FUSED: FusedStep}
        sides = {name: lowered(kind(model, length), Path(folder)) for name, kind in kinds.items()}
    tokens = torch.randint(options.vocabulary, (length,))
    calls = {name: partial(_call, method, tokens) for name, (_, method) in sides.items()}
    wanted = model(input_ids=tokens[None, :CHECKED], logits_to_keep=1).logits[:, -1]
    for call in calls.values():
        *_, found = (call(at) for at in range(CHECKED))
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)
    for at in (length // 8, length - 1):
        here = {name: partial(call, at) for name, call in calls.items()}
        times = [in_turn(here, 5) for _ in range(ROUNDS)]
        row = {f"{name}_ms": min(min(own[name]) for own in times) for name in here}
        ratio = row[f"{FUSED}_ms"] / row["etdev_ms"]
        yield {"rows": length, "position": at, **row, "fused / etdev": ratio}


def main() -> None:
    """Measure, print and keep the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--hidden", type=int, default=512)
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--vocabulary", type=int, default=8192)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 1024, 4096])
    options = parser.parse_args()
    begin()
    found = []
    for row in (row for length in options.lengths for row in measure(options, length)):
        record.console.print(row, markup=False)
        found.append(row)
    record.save("attention", {"options": vars(options), "rows": found}, [])
    record.columns("a token of a decoder", found)


if __name__ == "__main__":
    main()
