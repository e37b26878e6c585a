"""The outcome of a case: digests of the files it writes, or the error that it is refused with."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import multiprocessing
import os
import random
import re
import shutil
import signal
import tempfile
import time
import warnings
from collections.abc import Iterator, Sequence
from multiprocessing.connection import wait
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import numpy
import torch
from attrs import frozen
from executorch.exir import to_edge_transform_and_lower
from tqdm import tqdm

import etdev
from etdev import EtdevError, EtdevWarning, Lowerer, Plan
from support.corpus.selection import Case, Source

# Plain data, as it is in a record: `files` or `plan` or `error` and `text`, and `warnings`.
Outcome = dict[str, Any]
TIMEOUT_S = 600.0


def outcomes(
    cases: Sequence[Case], processes: int, keep: Path | None = None
) -> Iterator[tuple[Case, Outcome]]:
    """Yield the outcome of each case, as they end.

    A case runs in a process of its own, because OpenVINO counts its nodes per process and so gives
    other bytes after other models.

    Args:
        cases: The cases, in the order in which they start.
        processes: How many run at a time.
        keep: A folder for the files that they write, or None to delete them.
    """
    _warm_up()
    context = multiprocessing.get_context("fork")
    left, running = list(reversed(cases)), list[_Run]()
    with tempfile.TemporaryDirectory() as temporary:
        while left or running:
            while left and len(running) < processes:
                case = left.pop()
                folder = Path(temporary if keep is None else keep) / re.sub(r"\W+", "-", case.key)
                result = Path(temporary) / f"{len(left)}.json"
                process = context.Process(target=_child, args=(case, folder, result))
                process.start()
                running.append(_Run(case, process, folder, result, time.monotonic() + TIMEOUT_S))
            wait([run.process.sentinel for run in running], timeout=1)
            for run in [run for run in running if run.has_ended()]:
                running.remove(run)
                if keep is None:
                    shutil.rmtree(run.folder, ignore_errors=True)
                yield run.case, run.outcome()


@frozen(eq=False)
class _Run:
    """A case in its process."""

    case: Case
    process: BaseProcess
    folder: Path
    result: Path
    deadline: float

    def has_ended(self) -> bool:
        """Return True if the process is done; kill it if it took too long."""
        if time.monotonic() > self.deadline:
            self.process.kill()
            self.process.join()
        return not self.process.is_alive()

    def outcome(self) -> Outcome:
        """Return the outcome that the process wrote, or how it ended without one."""
        if self.result.exists():
            outcome: Outcome = json.loads(self.result.read_text())
            return outcome
        code = self.process.exitcode or 0
        text = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        return {"error": "process ended", "text": text}


def _warm_up() -> None:
    """Import what most cases need, once; and start no thread, since processes are forked off."""
    tqdm.monitor_interval = 0
    torch.set_num_threads(1)
    model, inputs = torch.nn.ReLU(), (torch.ones(3),)
    with warnings.catch_warnings(), tempfile.TemporaryDirectory() as folder:
        warnings.simplefilter("ignore")
        Lowerer(["cpu"], cache=False).lower(model, inputs).save(Path(folder) / "model.pte")
        # OpenVINO is imported, but not loaded.
        with contextlib.suppress(EtdevError):
            Lowerer(["openvino"], cache=False).plan(model, inputs)
    gc.freeze()
    gc.enable()


def _child(case: Case, folder: Path, result: Path) -> None:
    # Compilers print as they please.
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):
            os.dup2(nowhere.fileno(), stream)
    outcome = outcome_of(case, folder)
    written = result.with_suffix(".part")
    written.write_text(json.dumps(outcome))
    written.rename(result)


def outcome_of(case: Case, folder: Path) -> Outcome:
    """Lower the model of a case, and write its files to a folder."""
    torch.manual_seed(0)
    random.seed(0)
    numpy.random.seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome = _PATHS[case.order.path](case, case.build(), folder)
        except Exception as error:
            outcome = {"error": type(error).__name__, "text": _first_line(error)}
    said = {_first_line(w.message) for w in caught if issubclass(w.category, EtdevWarning)}
    return {**outcome, "warnings": sorted(said)} if said else outcome


def _lowered(case: Case, source: Source, folder: Path) -> Outcome:
    folder.mkdir(parents=True)
    _lowerer(case).lower(*source).save(folder / "model.pte")
    return _files(folder)


def _partitioned(case: Case, source: Source, folder: Path) -> Outcome:
    model, inputs = source
    if isinstance(model, torch.nn.Module):
        with torch.no_grad():
            model = torch.export.export(model, inputs)
    programs = model if isinstance(model, dict) else {"forward": model}
    partitioners = {
        method: [
            etdev.partitioner(
                list(case.order.plugins), method=method, registry=case.order.registry_file
            )
        ]
        for method in programs
    }
    manager = to_edge_transform_and_lower(programs, partitioner=partitioners)
    folder.mkdir(parents=True)
    manager.to_executorch().save(str(folder / "model.pte"))
    return _files(folder)


def _planned(case: Case, source: Source, folder: Path) -> Outcome:
    text = _plan_text(_lowerer(case).plan(*source))
    return {"plan": hashlib.sha256(text.encode()).hexdigest()}


_PATHS = {"lower": _lowered, "partition": _partitioned, "plan": _planned}


def _lowerer(case: Case) -> Lowerer:
    return Lowerer(list(case.order.plugins), registry=case.order.registry_file, cache=False)


def _plan_text(plan: Plan) -> str:
    """Return the partitions of a plan and their copies; reasons are left out, as they are prose."""
    lines = []
    for method in plan.methods:
        lines.append(f"method {method.method}")
        for part in method.partitions:
            lines.append(f"{part.name} {part.plugin} {part.backend_id} {part.device}")
            lines.append(f"  nodes {' '.join(part.nodes)}")
            lines.append(f"  inputs {' '.join(value.name for value in part.inputs)}")
            lines.append(f"  outputs {' '.join(value.name for value in part.outputs)}")
            lines += [f"  constant {each.target} {each.storage}" for each in part.constants]
            lines += [f"  spec {spec.key} {spec.value!r}" for spec in part.compile_specs]
        lines += [f"copy {c.tensor.name} {c.source} {c.target}" for c in method.copies]
    return "\n".join(lines)


def _files(folder: Path) -> Outcome:
    files = {}
    for file in sorted(folder.iterdir()):
        data = file.read_bytes()
        files[file.name] = f"{hashlib.sha256(data).hexdigest()} {len(data)} bytes"
    return {"files": files}


def _first_line(message: object) -> str:
    """Return the first line of a text, without folders and line numbers, which may change."""
    line = next(iter(str(message).splitlines()), "")
    return re.sub(r"\.py:\d+", ".py:LINE", re.sub(r"(?<![\w.])(/[\w.+-]+)+/", "", line))
