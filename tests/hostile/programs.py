"""Damaged, spliced, edited and foreign .pte files, as `etdev check` has to judge them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

import torch
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir import to_edge, to_edge_transform_and_lower
from executorch.exir._serialize import _program as serialize
from executorch.exir.scalar_type import ScalarType
from executorch.exir.schema import DataLocation, KernelCall, Tensor
from models import nets
from models.small import AddMul

from etdev import Lowerer

OPERATORS = ("aten::add", "aten::mul", "aten::cat", "aten::nothing", "etdev::add", "")
OVERLOADS = ("out", "Tensor", "Scalar_out", "")
BACKENDS = ("XnnpackBackend", "OpenvinoBackend", "QnnBackend", "CudaBackend", "Nobody", "")
DTYPES = (
    *(ScalarType.FLOAT, ScalarType.DOUBLE, ScalarType.HALF, ScalarType.BFLOAT16, ScalarType.INT),
    *(ScalarType.LONG, ScalarType.BOOL, ScalarType.QINT8, ScalarType.COMPLEX32),
)

# It shares nothing with the code that it judges. Each file is loaded in a process of its own, and
# each method called once with zeros, which may fail, but not for want of a kernel.
LOADER = """\
import os, sys, traceback
import torch
import executorch.kernels.quantized
from executorch.runtime import Runtime

def zeros(meta, index):
    tensor = meta.input_tensor_meta(index)
    return torch.zeros(tensor.sizes(), dtype=DTYPES[tensor.dtype()])

DTYPES = {0: torch.uint8, 1: torch.int8, 2: torch.int16, 3: torch.int32, 4: torch.int64,
    5: torch.float16, 6: torch.float32, 7: torch.float64, 11: torch.bool, 15: torch.bfloat16}

def tried(path, data):
    program = Runtime.get().load_program(path, **({"data_path": data} if data else {}))
    assert program.method_names
    methods = [program.load_method(name) for name in program.method_names]
    print("loaded", path, flush=True)
    for method in methods:
        try:
            meta = method.metadata
            inputs = [zeros(meta, index) for index in range(meta.num_inputs())]
        except Exception:
            continue
        try:
            method.execute(inputs)
        except Exception as error:
            # ExecuTorch's Error::OperatorMissing.
            if "0x14" in str(error):
                print("lacks", path, flush=True)

for word in sys.argv[1:]:
    child = os.fork()
    if not child:
        try:
            tried(*word.partition("=")[::2])
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    os.waitpid(child, 0)
"""


def loaded(files: Sequence[tuple[Path, Path | None]]) -> tuple[list[Path], list[Path], str]:
    """Load files with their data; return those that load, those that lack a kernel, and the log."""
    words = [f"{path}={data or ''}" for path, data in files]
    command = [sys.executable, "-c", LOADER, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, list[Path]] = {"loaded": [], "lacks": []}
    for line in done.stdout.splitlines():
        kind, _, path = line.partition(" ")
        if kind in found:
            found[kind].append(Path(path))
    return found["loaded"], found["lacks"], done.stderr


def originals(folder: Path, many: bool) -> list[Path]:
    """Write sound files of plain ExecuTorch, with and without delegates; with `many` of etdev."""
    two = {name: torch.export.export(AddMul(), (torch.ones(2), torch.ones(2))) for name in "ab"}
    program = torch.export.export(*nets.mlp())
    theirs = to_edge_transform_and_lower(program, partitioner=[XnnpackPartitioner()])
    for name, made in {"plain": to_edge(two), "theirs": theirs}.items():
        (folder / f"{name}.pte").write_bytes(made.to_executorch().buffer)
    if many:
        Lowerer([]).lower(*nets.conv_net()).save(folder / "portable.pte", with_ledger=True)
        Lowerer(["cpu"]).lower(*nets.quantised_conv_net()).save(folder / "int8.pte")
    return sorted(folder.glob("*.pte"))


def changed(random: Random, files: Sequence[bytes]) -> bytes:
    """Return a file that is like one of some others, and damaged, spliced or edited."""
    first, second = random.choice(files), random.choice(files)
    return random.choice([_flipped, _flipped, _cut, _spliced, _edited, _edited])(
        random, first, second
    )


def _head(data: bytes) -> int:
    """Return the size of the flatbuffer, which is in the header if there is one."""
    return int.from_bytes(data[16:24], "little") if data[8:12] == b"eh00" else len(data)


def _flipped(random: Random, first: bytes, _: bytes) -> bytes:
    """Change bytes of the flatbuffer, or of what lies behind it."""
    data, head = bytearray(first), _head(first)
    start, end = random.choice([(0, head), (0, head), (min(head, len(data) - 1), len(data))])
    for _ in range(random.choice((1, 1, 2, 16))):
        place = random.randrange(start, end)
        data[place] = random.choice((0, 1, 127, 255, random.randrange(256)))
    return bytes(data)


def _cut(random: Random, first: bytes, _: bytes) -> bytes:
    """Leave out the end, or a piece before it."""
    place = random.choice((random.randrange(len(first)), len(first) - random.randrange(1, 300)))
    return first[:place] + first[place + random.choice((len(first), 1, 16, 128)) :]


def _spliced(random: Random, first: bytes, second: bytes) -> bytes:
    """Put segments of one file behind the flatbuffer of another, or a piece into it."""
    if random.random() < 0.5:
        return first[: _head(first)] + second[_head(second) :]
    place, size = random.randrange(len(first)), random.choice((4, 32, 512))
    source = random.randrange(len(second))
    return first[:place] + second[source : source + size] + first[place + size :]


def _edited(random: Random, first: bytes, second: bytes) -> bytes:
    """Write a sound flatbuffer of another program: other ops, dtypes, backends or instructions."""
    made = serialize.deserialize_pte_binary(first)
    plan = random.choice(made.program.execution_plan)
    others = serialize.deserialize_pte_binary(second).program.execution_plan
    tensors = [value.val for value in plan.values if isinstance(value.val, Tensor)]
    match random.randrange(7):
        case 0 if plan.operators:
            op = random.choice(plan.operators)
            op.name, op.overload = random.choice(OPERATORS), random.choice(OVERLOADS)
        case 1 if plan.delegates:
            random.choice(plan.delegates).id = random.choice(BACKENDS)
        case 2 if plan.delegates and (theirs := [d for each in others for d in each.delegates]):
            mine, other = random.choice(plan.delegates), random.choice(theirs)
            inline = (DataLocation.INLINE,) * 2
            if (mine.processed.location, other.processed.location) == inline:
                data = serialize.deserialize_pte_binary(second).program.backend_delegate_data
                made.program.backend_delegate_data[mine.processed.index] = data[
                    other.processed.index
                ]
        case 3:
            calls = [i.instr_args for chain in plan.chains for i in chain.instructions]
            calls = [call for call in calls if isinstance(call, KernelCall)]
            for call in calls[:1]:
                call.args[random.randrange(len(call.args))] = random.randrange(len(plan.values))
        case 4:
            plan.inputs, plan.outputs = plan.outputs, plan.inputs
        case _:
            random.choice(tensors).scalar_type = random.choice(DTYPES)
    if plan is made.program.execution_plan[0] and random.random() < 0.1:
        made.program.execution_plan.append(random.choice(others))
    return bytes(serialize.serialize_pte_binary(made, extract_delegate_segments=True))
