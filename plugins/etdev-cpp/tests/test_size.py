"""`etdev size` counts every byte of a .pte once, and lists what ExecuTorch's own tool lists."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from attrs import evolve
from etdev_cpp import build, libraries, needs
from etdev_cpp.footprint import CONSTANTS, DELEGATE, NAMED, PADDING, PLAN, STATE, measure
from etdev_cpp.libraries import installed, link_flags, linked
from etdev_cpp.needs import needs_of, write_operators
from etdev_cpp.size import SIZE
from etdev_cpp.wheel import Wheel
from executorch.codegen.tools.gen_oplist import gen_oplist
from executorch.exir import ExecutorchBackendConfig
from support.models import nets
from support.models.matrix import Tied
from support.models.small import Function
from support.quirks import model
from support.shell import fails, succeeds
from support.shell.outlines import outline
from torch import arange, ones, randn

from etdev import Lowerer
from etdev.pte.read import read

GOLDEN = Path(__file__).parent / "documents.txt"
# ExecuTorch aligns segments, and constants in them, to this many bytes at most.
ALIGNMENT = 128
# Registers only the kernels that a program names, in place of the runtime's own function.
FILTER = r"""
#include <dlfcn.h>
#include <executorch/extension/module/module.h>
#include <executorch/runtime/kernel/operator_registry.h>
#include <cstdlib>
#include <cstdio>
#include <cstring>
#include <string>
#include <vector>
using namespace executorch::runtime;
static bool wanted(const char* name) {
  const std::string all = std::getenv("KERNELS");
  return all.find(" " + std::string(name) + " ") != std::string::npos;
}
namespace executorch { namespace ET_RUNTIME_NAMESPACE {
__attribute__((visibility("default"))) Error register_kernels(const Span<const Kernel> kernels) {
  using Function = Error (*)(Span<const Kernel>);
  static const auto next = reinterpret_cast<Function>(dlsym(RTLD_NEXT, std::getenv("SYMBOL")));
  for (const auto& kernel : kernels) {
    if (wanted(kernel.name_)) {
      const Error error = next(Span<const Kernel>(&kernel, 1));
      if (error != Error::Ok) return error;
    }
  }
  return Error::Ok;
}
}}
int main(int count, char** words) {
  executorch::extension::Module module(words[1]);
  for (int i = 2; i < count; ++i) {
    const auto error = module.load_method(words[i]);
    if (error != Error::Ok) { std::printf("%s\n", to_string(error)); return 1; }
  }
  return 0;
}
"""


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory for each test, so that messages hold short paths."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    return tmp_path / "here"


@pytest.fixture
def lowered(tmp_path):
    """Return a function that lowers a model, and saves it with options."""

    def save(model, inputs, plugins=("cpu",), config=None, **options):
        done = Lowerer(list(plugins)).lower(model, inputs)
        return done.save(tmp_path / "net.pte", config, **options)

    return save


def parts_of(path):
    sizes = {}
    for part in measure(path).parts:
        sizes[part.kind] = sizes.get(part.kind, 0) + part.size_bytes
    return sizes


def test_the_kernels_are_those_of_gen_oplist(cell, tmp_path):
    _, path = cell
    theirs, ours = tmp_path / "theirs.yaml", tmp_path / "ours.yaml"
    gen_oplist(theirs, model_file_path=str(path))
    found = measure(path)
    write_operators(found, ours)
    theirs, ours = (yaml.safe_load(file.read_text()) for file in (theirs, ours))
    assert ours["operators"].keys() == theirs["operators"].keys()
    keys = [
        {name: sorted(own) for name, own in selected["et_kernel_metadata"].items()}
        for selected in (ours, theirs)
    ]
    assert keys[0] == keys[1]
    artifact = read(path)
    assert set(found.backends) == {d.backend_id for m in artifact.methods for d in m.delegates}
    calls = {}
    for method in artifact.methods:
        for name, count in method.kernels.items():
            calls[name] = calls.get(name, 0) + count
    assert {k.name: k.calls for k in found.kernels if k.calls} == calls


def test_every_byte_of_the_file_is_in_one_part(cell):
    case, path = cell
    found, artifact = measure(path), read(path)
    sizes = parts_of(path)
    assert sum(sizes.values()) == found.size_bytes == path.stat().st_size
    items = sum(part.items for part in found.parts)
    assert 0 <= sizes[PADDING] <= ALIGNMENT * (items + 2)
    delegates = [d for m in artifact.methods for d in m.delegates]
    assert sizes.get(DELEGATE, 0) == sum(d.size_bytes for d in delegates)
    assert sizes.get(NAMED, 0) == artifact.named_bytes
    if not found.backends:
        # Kernels get each constant once, and nothing packs it.
        stored = sizes.get(CONSTANTS, 0) + sizes.get(STATE, 0)
        assert 0 < stored <= case.constant_bytes + 64


def test_constants_are_counted_by_module_and_once_where_a_backend_reads_them_too(lowered):
    net, inputs = Tied().eval(), (arange(4).reshape(1, 4),)
    path = lowered(net, inputs, with_ledger=True)
    found, weight = needs_of(path), 256 * 32 * 4
    modules = {module.module: module for module in found.modules}
    tied = modules["embedding"]
    assert (tied.constants, tied.size_bytes, tied.stored_bytes) == (1, weight, 2 * weight)
    assert tied.holders == ["cpu"]
    assert found.footprint.repeated_bytes == 0
    assert weight <= parts_of(path)[CONSTANTS] < 1.1 * weight
    assert parts_of(path).get(NAMED, 0) < weight
    assert path.stat().st_size < 2 * weight
    assert found.plugins == {"XnnpackBackend": "cpu"}
    assert parts_of(path)[PLAN] == read(path).ledger_bytes > 0
    plan = path.with_suffix(".json")
    plan.write_text(Lowerer(["cpu"]).plan(net, inputs).to_json())
    told = succeeds("size", lowered(net, inputs), "--plan", plan)
    assert "embedding" in told
    assert needs._UNNAMED not in told


def test_state_and_constants_in_a_ptd_are_told_apart(lowered):
    net = model(lambda n, x: n.total.add_(x) * n.weight, total=ones(5), weight=randn(5))
    assert parts_of(lowered(net, (ones(5),), ()))[STATE] == 20
    path = lowered(net, (ones(5),), (), ExecutorchBackendConfig(external_constants=True))
    found = needs_of(path)
    assert found.footprint.external == {"weight": 20}
    assert [(m.module, m.size_bytes) for m in found.modules] == [("", 20)]
    assert CONSTANTS not in parts_of(path)


def test_what_would_make_it_smaller_is_said(lowered):
    mixed = needs_of(lowered(*nets.mlp()))
    known = linked(["XnnpackBackend", "aten::native_layer_norm.out"])
    alone = linked(["XnnpackBackend"]).size_bytes
    assert mixed.runtime_bytes == known.size_bytes
    assert mixed.link == link_flags(known.libraries)
    assert (
        f"{alone} instead of {known.size_bytes} bytes of libraries if delegates had "
        "aten::native_layer_norm.out; etdev explain says why they don't"
    ) in mixed.notes
    whole = needs_of(lowered(Function(lambda x: x.relu()), (ones(3),)))
    assert (whole.runtime_bytes, whole.notes) == (alone, (needs._UNNAMED,))


def test_a_backend_that_loads_more_libraries_is_said(lowered):
    pytest.importorskip("openvino", reason="openvino is not installed")
    found = needs_of(lowered(*nets.mlp(), ["openvino"]))
    name = "libexecutorch_backend_openvino.so"
    assert f"{name} loads more libraries when it runs, which are not counted" in found.notes


def test_foreign_backends_and_an_executorch_without_libraries_are_said(lowered, monkeypatch):
    path = lowered(*nets.mlp())
    plain = measure(path)
    monkeypatch.setattr(needs, "measure", lambda _: evolve(plain, backends=("MyBackend",)))
    assert (
        "no library of this ExecuTorch has MyBackend; link those of their vendors as well"
    ) in needs_of(path).notes
    monkeypatch.setattr(libraries, "installed", lambda: ())
    bare = needs_of(path)
    assert (bare.link, bare.libraries, bare.runtime_bytes) == ((), (), 0)
    assert any("no libraries for C++; they come with ExecuTorch 1.5" in text for text in bare.notes)


def test_the_command_prints_tables_a_document_and_operators(lowered, here):
    path = lowered(*nets.mlp())
    told = succeeds("size", path, "--operators", "ops.yaml")
    for text in ("native_layer_norm.out", "libexecutorch_backend_xnnpack.so", "link with: -L"):
        assert text in told
    assert list(yaml.safe_load((here / "ops.yaml").read_text())["operators"]) == [
        "aten::native_layer_norm.out"
    ]
    alone = lowered(Function(lambda x: x.relu()), (ones(3),))
    succeeds("size", alone, "--operators", "none.yaml")
    assert yaml.safe_load((here / "none.yaml").read_text())["operators"] == {}
    document = json.loads(succeeds("size", path, "--json"))
    assert document["schema"] == SIZE.name
    assert document["footprint"]["size_bytes"] == path.stat().st_size


def test_the_document_has_the_shape_of_its_version(lowered):
    path = lowered(*nets.mlp(), with_ledger=True)
    document = json.loads(succeeds("size", path, "--json"))
    assert outline("size", document) + "\n" == GOLDEN.read_text(), "raise the version"


def test_a_bad_file_is_named_and_nothing_is_written(lowered, here):
    whole = lowered(*nets.mlp()).read_bytes()
    (here / "cut.pte").write_bytes(whole[: len(whole) // 2])
    assert "cut.pte: is damaged or truncated" in fails("size", "cut.pte", "--operators", "x.yaml")
    (here / "net.pte").write_bytes(whole)
    assert ".: does not end in .yaml; name it" in fails("size", "net.pte", "--operators", ".")
    assert {file.name for file in here.iterdir()} == {"cut.pte", "net.pte"}


def test_torch_is_not_imported(lowered):
    code = (
        "import sys\nfrom etdev.cli.main import main\ntry: main(sys.argv[1:])\n"
        "except SystemExit as done: print(done.code, 'torch' in sys.modules)"
    )
    path = lowered(*nets.mlp(), with_ledger=True)
    for words in (["--json"], ["--operators", str(path.with_suffix(".yaml"))]):
        command = [sys.executable, "-c", code, "size", str(path), *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60)
        assert done.stdout.splitlines()[-1] == "0 False", done.stderr


@pytest.mark.usefixtures("compiles")
def test_the_listed_kernels_are_enough_and_none_is_too_many(cells, tmp_path):
    source, program = tmp_path / "filter.cpp", tmp_path / "filter"
    source.write_text(FILTER)
    build.compile_program(build.Compiler.here(), [source], program, Wheel.here(), ["-rdynamic"])
    (runtime,) = (library for library in installed() if library.name == libraries.RUNTIME)
    symbols = subprocess.run(
        ["nm", "-D", runtime.path], capture_output=True, text=True, check=True
    ).stdout.split()
    (symbol,) = (name for name in symbols if "16register_kernels" in name)
    for order in ("portable", "xnnpack"):
        _, path = cells("dynamic_batch", order)
        methods = [method.name for method in read(path).methods]
        names = [kernel.name for kernel in measure(path).kernels]
        assert names

        def loads(kernels, path=path, methods=methods):
            environment = {"KERNELS": f" {' '.join(kernels)} ", "SYMBOL": symbol}
            words = [program, path, *methods]
            return not subprocess.run(words, env=environment, capture_output=True).returncode

        assert loads(names)
        for name in names:
            assert not loads([other for other in names if other != name]), name


def test_backends_in_libraries_of_their_own_are_found_by_the_target(lowered, here):
    # As a build for Android may have them: the wheel's libraries under Android's names.
    folder = here / "android" / "lib"
    folder.mkdir(parents=True)
    renamed = {"libexecutorch_backend_xnnpack.so": "libxnnpack_executorch_backend.so"}
    for library in installed():
        name = library.path.name
        if "openvino" not in name and "qnn" not in name:
            (folder / renamed.get(name, name)).symlink_to(library.path)
    (here / "registry.toml").write_text(
        f'[targets.phone]\ntriple = "aarch64-linux-android"\non = "adb"\n'
        f'executorch = "{folder.parent}"\n'
    )
    path = lowered(*nets.mlp())
    found = json.loads(succeeds("size", path, "--target", "phone", "--json"))
    needed = {library["file"]: library["needed_for"] for library in found["libraries"]}
    assert needed["libxnnpack_executorch_backend.so"] == ["XnnpackBackend"]
    assert "libexecutorch_backend_xnnpack.so" not in needed
    assert "-lxnnpack_executorch_backend" in found["link"]
    assert "has no include/ and lib/ of ExecuTorch" in fails(
        "new", "app", path, "--target", "phone"
    )
