"""A plugin whose backend writes down what it compiles, and fails or dies of an op.

It is importable, so that workers can make it again; XNNPACK runs what it compiles.
"""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path

from attrs import define, field
from executorch.backends.xnnpack.xnnpack_preprocess import XnnpackBackend
from executorch.exir.backend.backend_details import BackendDetails

from etdev import Claim, Group, hookimpl

OPS = ("aten.add.Tensor", "aten.mul.Tensor", "aten.sub.Tensor")


class MoodyBackend(BackendDetails):
    """Compiles for XNNPACK."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return compiled(edge_program, compile_specs)


class MoodyTogetherBackend(BackendDetails):
    """Compiles for XNNPACK, all partitions in one call."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return compiled(edge_program, compile_specs)

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        return {
            method: [compiled(*pair) for pair in zip(programs, compile_specs[method], strict=True)]
            for method, programs in edge_programs.items()
        }


def compiled(edge_program, compile_specs):
    """What XNNPACK makes of a partition, if the mood is right."""
    told = {spec.key: spec.value.decode() for spec in compile_specs}
    targets = [str(node.target) for node in edge_program.graph.nodes]
    (op,) = [op for op in OPS if any(op in target for target in targets)]
    with Path(told["log"]).open("a") as log:
        log.write(f"{os.getpid()} {op}\n")
    if told["fails"] == op:
        try:
            raise KeyError("the real cause")
        except KeyError as error:
            raise ValueError("not in the mood") from error
    if told["dies"] == op:
        os.kill(os.getpid(), signal.SIGKILL)
    if told["freezes"] == op:
        os.kill(os.getpid(), signal.SIGSTOP)
    if told["sleeps"] == op:
        time.sleep(600)
    if told["home"] != str(os.getpid()):
        time.sleep(float(told["dawdles"]))
    return XnnpackBackend.preprocess(edge_program, [])


@define(eq=False)
class Moody:
    """Takes additions, products and differences, each in a partition of its own.

    Args:
        log: File that the backend writes a line to for each call: process and op.
        fails: The op that it raises at.
        dies: The op that kills its process.
        freezes: The op that stops its process.
        sleeps: The op that it sleeps at for long.
        dawdles: Seconds that it sleeps at every op in another process than this one.
        note: What it annotates its nodes with.
        compiler: The backend that compiles.
    """

    log: str
    fails: str = ""
    dies: str = ""
    freezes: str = ""
    sleeps: str = ""
    dawdles: float = 0.0
    home: str = field(factory=lambda: str(os.getpid()))
    note: object = 1
    compiler: str = "MoodyBackend"
    name: str = "moody"

    @hookimpl
    def claim_nodes(self, program):
        nodes = [n for n in program.graph.nodes if any(op in str(n.target) for op in OPS)]
        specs = {
            "log": self.log,
            "fails": self.fails,
            "dies": self.dies,
            "freezes": self.freezes,
            "sleeps": self.sleeps,
            "dawdles": str(self.dawdles),
            "home": self.home,
        }
        return Claim(
            "XnnpackBackend",
            [Group([node]) for node in nodes],
            compiler=self.compiler,
            compile_specs={key: value.encode() for key, value in specs.items()},
            merge=False,
        )

    @hookimpl
    def annotate(self, partition):
        return {name: {"moody": self.note} for name in partition.nodes}

    @hookimpl
    def cache_key(self):
        return {"moody": "1"}

    def calls(self) -> list[tuple[int, str]]:
        """Process and op of each call of the backend so far."""
        path = Path(self.log)
        lines = path.read_text().splitlines() if path.exists() else []
        return [(int(process), op) for process, op in map(str.split, lines)]

    def ops(self) -> list[str]:
        """The ops that were compiled, in alphabetical order."""
        return sorted(op for _, op in self.calls())
