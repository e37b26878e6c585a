"""`etdev new app` writes a project that builds without warnings and prints what eager prints."""

from __future__ import annotations

import copy
import os
import re
import shutil
import subprocess

import numpy as np
import pytest
import torch
from attrs import evolve
from etdev_cpp.app import rendered, write
from etdev_cpp.frames import raw
from etdev_cpp.interface import methods_of
from etdev_cpp.wheel import Wheel
from executorch.exir import ExecutorchBackendConfig
from support.emulator import PI, emulated
from support.models.matrix import LARGE, SMALL, Case, one
from support.shell import fails, succeeds
from torch import nn
from torch.export import Dim

from etdev import Device, Lowerer
from etdev.app import ProgramFile
from etdev.errors import RunError
from etdev.pte.read import read
from etdev.testing.fakes import FAKE, Accelerator
from etdev.upstream.trees import flat
from etdev.verify.output_error import compare

pytestmark = pytest.mark.usefixtures("compiles")


class Flags(nn.Module):
    """Inputs and outputs that are not all tensors of floats."""

    def forward(self, x, flags, image):
        return x.sum(0).to(torch.int64), ~flags, x.argmax().item(), image.relu()


class Scale(nn.Module):
    """A method of a dynamic size, which it computes with."""

    def forward(self, x):
        return x.flatten() * x.shape[0]


class Total(nn.Module):
    """A method of a buffer that it may share with another method."""

    def __init__(self, total, adds):
        super().__init__()
        self.register_buffer("total", total)
        self.adds = adds

    def forward(self, x):
        if self.adds:
            self.total.add_(x)
        return self.total * x


class Images(nn.Module):
    """Convolutions over images, of which a call has several."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))

    def forward(self, images):
        return self.layers(images)


class Recurrent(nn.Module):
    """A GRU that goes on from the state of the call before."""

    def __init__(self):
        super().__init__()
        self.gru = nn.GRU(4, 6)
        self.register_buffer("hidden", torch.zeros(1, 6))

    def forward(self, steps):
        outputs, hidden = self.gru(steps, self.hidden)
        self.hidden.copy_(hidden)
        return outputs, hidden.sum(-1)


class Attention(nn.Module):
    """A layer with a cache, which one method fills and another goes on with."""

    def __init__(self):
        super().__init__()
        self.query, self.key = nn.Linear(8, 8), nn.Linear(8, 8)
        self.register_buffer("keys", torch.zeros(6, 8))

    def forward(self, tokens, position):
        self.keys.index_copy_(0, position, self.key(tokens))
        later = torch.arange(6)[None] > position[:, None]
        scores = self.query(tokens) @ self.keys.T
        return torch.softmax(scores.masked_fill(later, -1e9), -1) @ self.keys


def images():
    runs = [(torch.randn(count, 3, 8, 8),) for count in (2, 5, 1)]
    return one(Images().eval(), *runs, dynamic_shapes=({0: Dim("count", min=1, max=5)},))


def recurrent():
    return one(Recurrent().eval(), *[(torch.randn(3, 4),) for _ in range(3)])


def decoder():
    net, tokens = Attention().eval(), torch.randn(6, 8)
    calls = [("prefill", (tokens[:3], torch.arange(3)))]
    calls += [("decode", (tokens[i : i + 1], torch.tensor([i]))) for i in (3, 4, 5)]
    with torch.no_grad():
        programs = {name: torch.export.export(net, dict(calls)[name]) for name in dict(calls)}

    def eager():
        fresh = copy.deepcopy(net)
        return {"prefill": fresh, "decode": fresh}

    return Case(programs, eager, calls)


MODELS = {"images": images, "recurrent": recurrent, "decoder": decoder, **SMALL, **LARGE}
REAL = ["images", "minilm_l6", "recurrent", "decoder", "int8_conv_net"]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory for each test, so that messages hold short paths."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def built(folder):
    """Build a project, which has to give no warning, and return its binary."""
    run("./build.sh", folder)
    return binary_in(folder / "build")


def run(command, folder):
    """Run a command in a project, for which a compiler's warning is an error."""
    done = subprocess.run(
        command.split(),
        cwd=folder,
        env={**os.environ, "CXXFLAGS": "-Werror"},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def binary_in(folder):
    (binary,) = (path for path in folder.iterdir() if not path.suffix)
    return binary


def ran(folder, binary, calls):
    """Run calls of methods; return the lines that are printed, and the outputs of each call."""
    lines = []
    for number, (method, inputs) in enumerate(calls):
        words = [method]
        for index, value in enumerate(inputs):
            if isinstance(value, torch.Tensor):
                (folder / f"{number}.{index}").write_bytes(raw(value))
                words.append(f"{number}.{index}:{'x'.join(map(str, value.shape))}")
            else:
                words.append(str(value).lower())
        lines.append(" ".join(words))
    (folder / "calls.txt").write_text("# method, inputs\n\n" + "\n".join(lines))
    (folder / "out").mkdir()
    done = subprocess.run(
        [binary, "calls.txt", "out"], cwd=folder, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def assert_prints(folder, calls, eager, tolerance=1e-5, binary=None, named=False):
    """Compare the files and the lines of a run with eager PyTorch."""
    lines = iter(ran(folder, binary or built(folder), calls))
    for number, (method, inputs) in enumerate(calls):
        with torch.no_grad():
            expected = flat(eager[method](*copy.deepcopy(inputs)))
        for index, value in enumerate(expected):
            output = "output" if named and len(expected) == 1 else f"output{index}"
            line, name = next(lines), f"{number + 3}.{method} {output}"
            if not isinstance(value, torch.Tensor):
                assert line == f"{name}: {value}"
                continue
            file = folder / "out" / f"{name.replace(' ', '.')}.bin"
            dtype = str(value.dtype).removeprefix("torch.")
            found = np.frombuffer(file.read_bytes(), dtype="uint8" if dtype == "bool" else dtype)
            order = sorted(range(value.dim()), key=lambda dim: -value.stride(dim))
            dense = value.permute(order).reshape(-1)
            (difference,) = compare([torch.from_numpy(found.copy()).to(value.dtype)], [dense])
            assert difference.max_error <= tolerance * max(difference.max_value, 1e-3)
            assert line.startswith(f"{name} {list(value.shape)}:")
            shown = line.partition("]:")[2].removesuffix(" ...").split()
            assert len(shown) == min(value.numel(), 8)
            assert np.allclose([float(text) for text in shown], found[:8], equal_nan=True)
    assert next(lines, None) is None


def case_of(model, folder, target=None):
    torch.manual_seed(0)
    case = MODELS[model]()
    lowered = Lowerer(["cpu"]).lower(dict(case.programs))
    path = lowered.save(folder / f"{model}.pte", with_ledger=True)
    return case, write(path, folder / "app", target=target)


def on(model, binary, folder):
    """Return a script that runs a binary on an emulated model of processor."""
    script = folder / f"on-{model}"
    words = f"qemu-aarch64 -cpu {model} -L /usr/{PI.triple} {binary}"
    script.write_text(f'#!/bin/sh\nexec {words} "$@"\n')
    script.chmod(0o755)
    return script


@pytest.fixture(scope="module")
def app(tmp_path_factory):
    """The calls of a program, its modules, its project and what was built, which takes seconds."""
    image = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    x, flags = torch.tensor([[1.0, float("nan")], [3.0, -2.0]]), torch.tensor([True, False])
    eager = {"scale": Scale(), "layer": nn.Linear(3, 2).eval(), "read-flags": Flags()}
    total = torch.arange(4.0)
    eager.update(add=Total(total, adds=True), show=Total(total, adds=False))
    eager["decode"] = Attention().eval()
    calls = [
        *[("scale", (torch.randn(rows, 3),)) for rows in (4, 8, 1, 5)],
        ("layer", (torch.randn(1, 3),)),
        ("read-flags", (x, flags, image)),
        *[(name, (torch.randn(4),)) for name in ("show", "add", "show", "add", "show")],
        *[("decode", (torch.randn(1, 8), torch.tensor([position]))) for position in range(6)],
    ]
    shapes = {"scale": ({0: Dim("n", min=1, max=8)},)}
    methods = {
        name: torch.export.export(eager[name], inputs, dynamic_shapes=shapes.get(name))
        for name, inputs in dict(calls).items()
    }
    config = ExecutorchBackendConfig(external_constants=True)
    base = tmp_path_factory.mktemp("app")
    path = Lowerer([]).lower(methods).save(base / "my-net.pte", config, with_ledger=True)
    folder = write(path, base / "app")
    return calls, eager, folder, built(folder)


def test_an_app_prints_what_eager_prints(app):
    calls, eager, folder, binary = app
    assert_prints(folder, calls, eager, binary=binary, named=True)
    (data,) = folder.parent.glob("*.ptd")
    text = (folder / "model.h").read_text()
    assert "static constexpr std::array<int32_t, 2> kXSizes{8, 3};" in text
    assert f'kData = "{data.name}"' in text
    assert "kShareArenas = true" in text
    scale = next(m for m in read(folder / "my-net.pte").methods if m.name == "scale")
    assert "aten::sym_size.int" in scale.operators


def test_a_call_that_does_not_fit_is_an_error_with_its_line(app):
    _, _, folder, binary = app
    (folder / "four.bin").write_bytes(raw(torch.ones(4)))
    (folder / "seven.bin").write_bytes(raw(torch.tensor([7])))
    errors = {
        "layer four.bin:1x4": "1: input_1 of layer has other sizes than the method takes",
        "layer four.bin:1x3": "1: ./four.bin is not a file of these sizes",
        "layer gone.bin:1x3": "1: ./gone.bin is not a file of these sizes",
        "layer": "1: an input is missing",
        "\nbackward 1": "2: the program has no such method",
        "decode decode.tokens.bin:1x8 seven.bin:1": (
            "1: decode: Error::InvalidArgument; an input is out of range, or its state is full: "
            "it has keys of 6 x 8"
        ),
    }
    for line, error in errors.items():
        (folder / "bad.txt").write_text(line)
        done = subprocess.run(
            [binary, "./bad.txt"], cwd=folder, capture_output=True, text=True, timeout=60
        )
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr.splitlines()[-1] == f"./bad.txt:{error}"
    program = binary.parent / "my-net.pte"
    whole = program.read_bytes()
    try:
        program.write_bytes(whole[:99])
        done = subprocess.run([binary, "bad.txt"], cwd=folder, capture_output=True, text=True)
    finally:
        program.write_bytes(whole)
    assert done.returncode == 1
    assert re.fullmatch(r"bad.txt:0: .*net.pte: Error::\w+", done.stderr.splitlines()[-1])


@pytest.mark.suite
@pytest.mark.parametrize("model", REAL)
def test_an_app_of_a_real_model_prints_what_eager_prints(model, tmp_path):
    case, folder = case_of(model, tmp_path)
    assert_prints(folder, case.calls, case.eager(), case.tolerance, named=True)


@emulated
@pytest.mark.parametrize("model", [pytest.param(model, marks=pytest.mark.suite) for model in REAL])
def test_an_app_for_another_processor_prints_what_eager_prints(model, tmp_path):
    case, folder = case_of(model, tmp_path, PI)
    program = built(folder)
    # The folder that is copied to a board has all that it needs.
    away = shutil.copytree(folder / "build", tmp_path / "away")
    shutil.move(folder / "build", tmp_path / "gone")
    binary = on("cortex-a76", away / program.name, tmp_path)
    assert_prints(folder, case.calls, case.eager(), case.tolerance, binary, named=True)


@pytest.mark.suite
@emulated
def test_cmake_builds_and_installs_it_for_another_processor(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("CMake is not installed")
    case, folder = case_of("decoder", tmp_path, PI)
    run("cmake -B build -DCMAKE_TOOLCHAIN_FILE=toolchain.cmake", folder)
    run("cmake --build build", folder)
    away = tmp_path / "away"
    run(f"cmake --install build --prefix {away}", folder)
    shutil.rmtree(folder / "build")
    assert {"decoder.pte", "libexecutorch.so", "calls.txt"} <= {
        file.name for file in away.iterdir()
    }
    binary = on("cortex-a53", binary_in(away), tmp_path)
    assert_prints(folder, case.calls, case.eager(), binary=binary, named=True)


@pytest.mark.suite
def test_cmake_builds_and_installs_it_here(tmp_path):
    if not shutil.which("cmake"):
        pytest.skip("CMake is not installed")
    case, folder = case_of("recurrent", tmp_path)
    run("cmake -B build", folder)
    run("cmake --build build", folder)
    run(f"cmake --install build --prefix {tmp_path / 'away'}", folder)
    binary = binary_in(tmp_path / "away")
    assert_prints(folder, case.calls, case.eager(), binary=binary, named=True)


class Named(nn.Module):
    """Arguments and results whose names mean something else in C++."""

    def forward(self, default, pair, *, more):
        return {"class": default + pair[0], "two words": (pair[1] * 2, more["x"]), "2nd": -default}


def test_values_have_the_names_of_the_model(tmp_path):
    a, b, c, d = torch.eye(4)
    exported = torch.export.export(Named(), (a, [b, c]), {"more": {"x": d}})
    path = Lowerer([]).lower(exported).save(tmp_path / "net.pte", with_ledger=True)
    source = ProgramFile(path)
    (method,) = methods_of(source.artifact, source.plan)
    assert [name for name, _ in method.inputs] == ["default_", "pair_0", "pair_1", "more_x"]
    outputs = ["class_", "two_words_0", "two_words_1", "output2nd"]
    assert [name for name, _ in method.outputs] == outputs
    (numbered,) = methods_of(source.artifact)
    assert [name for name, _ in numbered.outputs] == [f"output{i}" for i in range(4)]


def test_the_command_writes_the_project_or_nothing(here):
    path = Lowerer([]).lower(nn.ReLU(), (torch.ones(2),)).save(here / "net.pte")
    told = succeeds("new", "app", path)
    names = {*("CMakeLists.txt", "README.md", "build.sh", "calls.txt", "main.cpp", "model.h")}
    names |= {"net.pte", "forward.input0.bin"}
    assert {file.name for file in (here / "net-app").iterdir()} == names
    assert told.splitlines()[-1] == "next: cd net-app && ./build.sh"
    assert "net-app: is there already; name another folder" in fails("new", "app", path)
    (here / "bad.pte").write_text("no")
    assert "bad.pte: is not a .pte file" in fails("new", "app", here / "bad.pte", "x")
    assert not (here / "x").exists()
    assert "can't be written" in fails("new", "app", path, here / "gone" / "x")


def texts_of(artifact):
    return rendered(artifact, methods_of(artifact))


def test_only_the_libraries_that_a_file_needs_are_linked(mlp_pte):
    texts = texts_of(read(mlp_pte))
    libraries = {f"executorch{name}" for name in ("", "_backend_xnnpack", "_threadpool")}
    libraries.add("executorch_kernels_optimized")
    assert set(re.findall(r" -l(\w+)", texts["build.sh"])) == libraries
    relu = Lowerer(["cpu"]).lower(nn.ReLU(), (torch.ones(2),))
    alone = texts_of(read(relu.save(mlp_pte.parent / "relu.pte")))
    assert set(re.findall(r" -l(\w+)", alone["build.sh"])) == {*libraries} - {
        "executorch_kernels_optimized"
    }


def test_a_value_without_a_type_in_cpp_is_refused(mlp_pte):
    artifact = read(mlp_pte)
    (method,) = artifact.methods
    odd = evolve(method, inputs=(evolve(method.inputs[0], dtype="complex64"),))
    with pytest.raises(RunError) as caught:
        methods_of(evolve(artifact, methods=(odd,)))
    assert "input0 of forward is complex64, which has no type in C++" in str(caught.value)


def test_a_backend_that_the_wheel_lacks_is_named(mlp_pte):
    artifact = read(mlp_pte)
    (method,) = artifact.methods
    foreign = [evolve(delegate, backend_id="MyBackend") for delegate in method.delegates]
    with pytest.raises(RunError) as caught:
        texts_of(evolve(artifact, methods=(evolve(method, delegates=foreign),)))
    assert caught.value.what == "no library of ExecuTorch's wheel has MyBackend"
    assert caught.value.cure == "give those of their vendors with --library FILE"


# A backend for ExecuTorch's runtime, as a vendor would ship it: it doubles its input.
BACKEND = """\
#include <executorch/runtime/backend/interface.h>
using namespace executorch::runtime;
class Doubling final : public BackendInterface {
 public:
  bool is_available() const override { return true; }
  Result<DelegateHandle*> init(
      BackendInitContext&, FreeableBuffer*, ArrayRef<CompileSpec>) const override {
    return reinterpret_cast<DelegateHandle*>(1);
  }
  Error execute(BackendExecutionContext&, DelegateHandle*, Span<EValue*> args) const override {
    auto in = args[0]->toTensor(), out = args[args.size() - 1]->toTensor();
    for (int i = 0; i < in.numel(); ++i) {
      out.mutable_data_ptr<float>()[i] = 2 * in.const_data_ptr<float>()[i];
    }
    return Error::Ok;
  }
};
static Doubling doubling;
static auto registered = register_backend({"NAME", &doubling});
"""


class Doubled(nn.Module):
    """What the vendor's backend computes, and then a kernel."""

    def forward(self, x):
        return (x + x).sin()


@pytest.mark.suite
@pytest.mark.parametrize("by", ["build.sh", "cmake"])
def test_an_app_links_a_vendors_library(tmp_path, by):
    lowered = Lowerer([Accelerator(ops=("add.Tensor",))]).lower(Doubled(), (torch.ones(2, 3),))
    path = lowered.save(tmp_path / "net.pte")
    source, library = tmp_path / "backend.cpp", tmp_path / "libvendor_backend.so"
    source.write_text(BACKEND.replace("NAME", FAKE))
    flags = [*Wheel.here().compile_flags(), "-shared", "-fPIC", "-o", str(library)]
    subprocess.run(["g++", *flags, str(source)], check=True)
    folder = tmp_path / "app"
    succeeds("new app", path, folder, "--library", library)
    library.unlink()
    if by == "build.sh":
        binary = built(folder)
    elif shutil.which("cmake"):
        run("cmake -B build", folder)
        run("cmake --build build", folder)
        run(f"cmake --install build --prefix {tmp_path / 'away'}", folder)
        binary = binary_in(tmp_path / "away")
    else:
        pytest.skip("there is no cmake here")
    calls = [("forward", (torch.randn(2, 3),)) for _ in range(3)]
    assert_prints(folder, calls, {"forward": Doubled()}, binary=binary)


def test_a_vendors_library_without_the_backend_or_a_linkers_name_is_refused(mlp_pte, tmp_path):
    other = tmp_path / "libother.so"
    other.write_bytes(b"\0OtherBackend\0")
    artifact = read(mlp_pte)
    (method,) = artifact.methods
    foreign = [evolve(delegate, backend_id="MyBackend") for delegate in method.delegates]
    program = evolve(artifact, methods=(evolve(method, delegates=foreign),))
    with pytest.raises(RunError) as caught:
        rendered(program, [], vendors=[other])
    assert caught.value.what == "no library of ExecuTorch's wheel, nor libother.so, has MyBackend"
    wrong = other.rename(tmp_path / "other.so")
    told = fails("new app", mlp_pte, tmp_path / "app", "--library", wrong)
    assert told == f"{wrong}: has a name that linkers don't look for; call it libNAME.so"


# Stands in for the two libraries of ExecuTorch's CUDA wheel, and for the header that declares the
# guard, after extension/cuda/caller_stream.h and CMakeLists.txt of pytorch/executorch.
GUARD = """
#pragma once
typedef struct CUstream_st* cudaStream_t;
namespace executorch::extension::cuda {
class __attribute__((visibility("default"))) CallerStreamGuard {
 public:
  explicit CallerStreamGuard(cudaStream_t stream);
  ~CallerStreamGuard();
};
}
"""
STREAMS = """
#include "caller_stream.h"
#include <cstdio>
namespace executorch::extension::cuda {
CallerStreamGuard::CallerStreamGuard(cudaStream_t stream) {
  std::fprintf(stderr, "stream %s\\n", stream ? "of the caller" : "by default");
}
CallerStreamGuard::~CallerStreamGuard() { std::fprintf(stderr, "restored\\n"); }
}
"""


def on_gpu(artifact):
    """The same program, as if it had one more delegate, for a GPU."""
    (method,) = artifact.methods
    more = evolve(method.delegates[0], devices=[Device("cuda")], backend_id="CudaBackend")
    there = evolve(method, delegates=[*method.delegates, more])
    return evolve(artifact, methods=(there,))


def test_only_a_program_for_a_gpu_has_one_stream_for_its_delegates(mlp_pte, cuda_wheel):
    assert "stream" not in texts_of(read(mlp_pte))["model.h"]
    texts = texts_of(on_gpu(read(mlp_pte)))
    assert "CallerStreamGuard guard(stream);\n    auto outputs = module_.exec" in texts["model.h"]
    assert "#include <executorch/extension/cuda/caller_stream.h>" in texts["model.h"]
    # As the CUDA delegate's library needs it.
    assert "-lexecutorch_extension_cuda" in texts["build.sh"]
    assert "libexecutorch_extension_cuda.so" in texts["CMakeLists.txt"]


def test_a_vendors_library_for_a_gpu_needs_the_stream_of_executorchs_cuda_wheel(mlp_pte, tmp_path):
    library = tmp_path / "libbackend.so"
    library.write_bytes(b"\0CudaBackend\0")
    with pytest.raises(RunError) as caught:
        rendered(on_gpu(read(mlp_pte)), [], vendors=[library])
    assert "this ExecuTorch has no executorch/extension/cuda/caller_stream.h" in caught.value.what


@pytest.fixture
def cuda_wheel(tmp_path, monkeypatch):
    """The wheel, with stand-ins for what the CUDA wheel has more; they are texts, not libraries."""
    real, ours = Wheel.here(), Wheel(tmp_path / "wheel")
    for file in (folder := real.folder / "lib").iterdir():
        (ours.folder / "lib").mkdir(parents=True, exist_ok=True)
        (ours.folder / "lib" / file.name).symlink_to(folder / file.name)
    extension = ours.folder / "include" / "executorch" / "extension"
    extension.mkdir(parents=True)
    for there in (extension, extension.parent, extension.parent.parent):
        for child in (real.folder / there.relative_to(ours.folder)).iterdir():
            if not (there / child.name).exists():
                (there / child.name).symlink_to(child)
    (extension / "cuda").mkdir()
    (extension / "cuda" / "caller_stream.h").write_text(GUARD)
    (ours.folder / "lib" / "libexecutorch_extension_cuda.so").write_bytes(b"")
    needs = b"CudaBackend\0libexecutorch_extension_cuda.so\0"
    (ours.folder / "lib" / "libexecutorch_backend_cuda.so").write_bytes(b"\0" + needs)
    monkeypatch.setattr(Wheel, "here", lambda: ours)
    return ours


@pytest.mark.suite
def test_an_app_for_a_gpu_builds_and_its_calls_run_on_one_stream(mlp_pte, cuda_wheel, tmp_path):
    """Built and run with the stand-ins: the delegates are XNNPACK's, as in the file itself."""
    source = tmp_path / "streams.cpp"
    source.write_text(STREAMS)
    library = cuda_wheel.folder / "lib" / "libexecutorch_extension_cuda.so"
    includes = cuda_wheel.folder / "include" / "executorch" / "extension" / "cuda"
    flags = ["-shared", "-fPIC", f"-I{includes}", "-o", str(library)]
    subprocess.run(["g++", *flags, str(source)], check=True)
    backend = library.with_name("libexecutorch_backend_cuda.so")
    subprocess.run(["g++", "-shared", "-x", "c++", "/dev/null", "-o", str(backend)], check=True)
    backend.write_bytes(backend.read_bytes() + b"\0CudaBackend\0libexecutorch_extension_cuda.so\0")
    folder = write(mlp_pte, tmp_path / "net-app")
    for name, text in texts_of(on_gpu(read(mlp_pte))).items():
        (folder / name).write_text(text)
    binary = built(folder)
    done = subprocess.run([binary, "calls.txt"], cwd=folder, capture_output=True, text=True)
    told = [line for line in done.stderr.splitlines() if line.startswith(("stream", "restored"))]
    assert (done.returncode, told) == (0, ["stream by default", "restored"])
