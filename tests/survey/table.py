"""The results of the survey as Markdown: verdicts by part, and order of plugins or processor."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from survey.judge import ORDERS, THEIRS

_BENCHMARKS = Path(__file__).parents[1] / "benchmarks"
RESULTS = _BENCHMARKS / "results/survey.json"
PAGE = _BENCHMARKS / "SURVEY.md"
# Verdicts that no model should have.
FAULTS = ("wrong", "raw", "failed", "crashed", "hung")
_KINDS = ("right", "refused", "no kernel", "nothing", "skipped", "unstable", *FAULTS)
COLUMNS = ("part", "order", "judged", *_KINDS, "below")
# The machine of the survey among the processors.
HERE = "here"
HEAD = """\
# Each model in each order of plugins

Made by `make survey` of `results/survey.json`, which has each verdict with its reason. A
judge that shares no code with `etdev verify` lowers a model, runs the `.pte` in
`executorch.runtime`, and compares each call with eager PyTorch, or with float64 where PyTorch's own
result is further off.

- **zoo**: the tests' own models, in `tests/support/zoo`. **suite**: ExecuTorch's operator tests.
  **float32, int64, bool, float16**: torch's database of operators, for each the first sample that
  torch exports and whose results have elements.
- **refused**: an error of etdev's that names the op. **no kernel**: the runtime here has none, of
  which `Lowerer` warns. **nothing**: no result has elements. **skipped**: by ExecuTorch's suite, in
  flows of partitioners. **wrong, raw, failed, crashed, hung**: faults.
  Two of the zoo's are wrong on purpose: XNNPACK takes the smallest numbers for 0, and OpenVINO's
  plugin ignores NaN unless `nan = "exact"`. `Lowered.verify`, which `etdev lower` calls, refuses
  each.
- **unstable**: PyTorch itself is off from float64 by more than the tolerance, and etdev by at most
  twice as much. The random weights of `mobilenet_v1` amplify rounding to 0.1 of 6 and more.
- **below**: not right where ExecuTorch's own path to XNNPACK is right. That path, `executorch`, is
  judged where an order of etdev's is not right, and in all of its own suite.
"""


PROCESSORS = """\
# The same files on other processors

Each model is lowered once, with XNNPACK and else portable kernels, for the wheel of the target
`aarch64-linux-gnu`. etdev-cpp's runner calls the `.pte` here, on x86-64, and in an emulator of a
Cortex-A53, of a Cortex-A76, which has dot products and half precision, and of a Neoverse V1, which
has SVE. The judge is the same; decoders are compared as by `etdev generate --check`.

- **matrix**: the models of `make matrix`. **precisions**: static int8, float16, and torchao's kinds
  of few bits. **decoders**: small ones of transformers, over a prompt and the tokens behind it,
  with their caches. **zoo**: one in three of the zoo's models.
- **below**: not right where the same file is right here.

An emulator is right only as far as its authors are. On the `max` of QEMU 7.2, Debian 12's,
`int8_conv_net` is off by 0.09 of 1.17, and right with `sme=off`. XNNPACK runs KleidiAI's kernels
for SME there: `kai_kernel_matmul_clamp_qai8_qai8p2vlx4_qsi8cxp2vlx4sb_2vlx2vl_sme_mopa` with
`kai_kernel_lhs_imatmul_pack_x8p2vlx4_x8p_sme`, for
`xnn_pqs8_qc8w_igemm_minmax_fp32_ukernel_32x32c4__neonsme`. On the `max` of QEMU 10.0.2 the same
kernels run the same instructions, 380 of 448, and the result is eager PyTorch's. So the fault is
QEMU 7.2's, and etdev-cpu has no row for it. No processor with SME was at hand.
"""


# What a model is in each order; the texts are those of `Verdict`.
Verdicts = dict[str, str]


def kind_of(verdict: str) -> str:
    """Return the kind of a verdict, which its reason may follow."""
    return verdict.partition(": ")[0]


def page() -> str:
    """Return the results as Markdown."""
    return "\n".join(_lines(json.loads(RESULTS.read_text())["parts"]))


def _lines(parts: dict[str, Any]) -> Iterator[str]:
    there = {name: own for name, own in parts.items() if "emulator" in own["circumstances"]}
    yield HEAD
    yield from _table({name: own for name, own in parts.items() if name not in there}, "order")
    if there:
        yield PROCESSORS
        whole = sum(_cells(own, own["of"] - len(_unfit(own))) for own in there.values())
        done = sum(_cells(own, len(own["models"]) - len(_unfit(own))) for own in there.values())
        yield f"{done} of {whole} cells on another processor were judged.\n"
        yield from _table(there, "processor")


def _unfit(own: dict[str, Any]) -> list[Verdicts]:
    return [orders for orders in own["models"].values() if not is_judged(orders)]


def _cells(own: dict[str, Any], models: int) -> int:
    """Return the cells of some models on other processors."""
    known = {order for orders in own["models"].values() if is_judged(orders) for order in orders}
    return models * len(known - {HERE})


def _table(parts: dict[str, Any], order: str) -> Iterator[str]:
    """Yield the numbers of parts, and a remark on each."""
    yield _row([order if column == "order" else column for column in COLUMNS])
    yield _row(["---"] * 2 + ["---:"] * (len(COLUMNS) - 2))
    for part, own in parts.items():
        yield from map(_row, rows(part, own["models"]))
    yield ""
    for part, own in parts.items():
        yield _remark(part, own)
        yield from _faults(own["models"])
    yield ""


def _row(cells: Sequence[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def _remark(part: str, own: dict[str, Any]) -> str:
    """Return a line that says when and with which versions a part was judged, and what is left."""
    unfit = Counter(next(iter(orders)) for orders in _unfit(own))
    left = [f"{count} {kind}" for kind, count in sorted(unfit.items())]
    if own["of"] > len(own["models"]):
        left.append(f"{own['of'] - len(own['models'])} not reached yet")
    versions = own["circumstances"]
    made = f"{versions['date']}, torch {versions['torch']}, ExecuTorch {versions['executorch']}"
    made += f", {versions['emulator']}" if "emulator" in versions else ""
    return f"- **{part}**: {own['of']} models; not judged: {', '.join(left) or 'none'} ({made})."


def _faults(models: dict[str, Verdicts]) -> Iterator[str]:
    """Yield a line for each model with a fault, with the first error of etdev's orders."""
    for name, orders in models.items():
        found = {o: v for o, v in orders.items() if o != THEIRS and kind_of(v) in FAULTS}
        if found:
            kind, _, text = next(iter(found.values())).partition(": ")
            yield f"  - `{name}` ({'; '.join(found)}): {kind}, {text}"


def rows(part: str, models: dict[str, Verdicts]) -> Iterator[list[Any]]:
    """Yield the numbers of models of a part by order and verdict."""
    judged = [orders for orders in models.values() if is_judged(orders)]
    for order in dict.fromkeys([*ORDERS, *(order for orders in judged for order in orders)]):
        kinds = Counter(kind_of(orders[order]) for orders in judged if order in orders)
        counts = [kinds[kind] for kind in _KINDS]
        missed = sum(name.endswith(f"| {order}") for name in below(models))
        if kinds:
            yield [part, order, kinds.total(), *counts, missed]


def is_judged(orders: Verdicts) -> bool:
    """Return True if a model was judged; else its only item says why not."""
    return any(kind_of(verdict) != order for order, verdict in orders.items())


def below(models: dict[str, Verdicts]) -> list[str]:
    """Name the cells that are not right where ExecuTorch's own path is, or the file is here."""
    return [
        f"{name} | {order}"
        for name, orders in models.items()
        for order, verdict in orders.items()
        if verdict != "right" and "right" in (orders.get(THEIRS), orders.get(HERE))
    ]


def faults(
    part: str, models: dict[str, Verdicts], expected: dict[tuple[str, str], str] | None
) -> list[str]:
    """Name the cells with a verdict that should not be; with `expected`, any that isn't expected.

    `expected` has the verdict of each model and order that should not be "right".
    """
    found = [f"{part} {cell}: below its reference" for cell in below(models)]
    found += [] if models else [f"{part}: nothing was judged"]
    for name, orders in models.items():
        for order, verdict in orders.items():
            kind = kind_of(verdict)
            fault = (
                kind in FAULTS if expected is None else kind != expected.get((name, order), "right")
            )
            found += [f"{part} {name} | {order}: {kind}"] if fault and order != THEIRS else []
    return found


def is_open(orders: Verdicts) -> bool:
    """Return True if a model should be right or refused in an order, and is not."""
    ours = {kind_of(verdict) for order, verdict in orders.items() if order != THEIRS}
    return bool(ours.intersection({*FAULTS, "nothing"}) or below({"": orders}))
