"""The libraries that a .pte needs: enough to run it, none too many, and held to a budget."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest
from etdev_cpp import libraries
from etdev_cpp.libraries import linked
from support.models import nets

import etdev
from etdev import Lowerer
from etdev.errors import BudgetError
from etdev.pte.read import read

pytestmark = pytest.mark.skipif(
    not libraries.installed(), reason="this ExecuTorch has no libraries for C++"
)
# Loads libraries, and says which names are registered; without the runtime it doesn't link.
REGISTERED = """
#include <cstdio>
#include <cstring>
#include <executorch/runtime/backend/interface.h>
#include <executorch/runtime/kernel/operator_registry.h>

int main(int count, char** names) {
  using namespace executorch::runtime;
  for (int i = 1; i < count; ++i) {
    bool found = get_backend_class(names[i]) != nullptr;
    for (const auto& kernel : get_registered_kernels())
      found = found || !std::strcmp(kernel.name_, names[i]);
    if (!found) return std::printf("%s is not registered\\n", names[i]), 1;
  }
  return 0;
}
"""
XNNPACK, MORE = "XnnpackBackend", "aten::native_layer_norm.out"
QUANTISED = "quantized_decomposed::add.out"


def names_of(path):
    methods = read(path).methods
    return {n for m in methods for n in (*m.operators, *(d.backend_id for d in m.delegates))}


def sizes(known):
    return {library.name.removeprefix("executorch_"): library.size_bytes for library in known}


def test_kernels_and_backends_are_found_in_the_libraries_that_register_them():
    known = linked([XNNPACK, MORE, "executorch_prim::et_view.default", QUANTISED, "NoBackend"])
    assert {library.name: names for library, names in known.libraries.items()} == {
        "executorch": ("executorch_prim::et_view.default",),
        "executorch_backend_xnnpack": (XNNPACK,),
        "executorch_kernels_optimized": (MORE,),
        "executorch_kernels_quantized": (QUANTISED,),
        "executorch_threadpool": (),
    }
    assert known.missing == ("NoBackend",)
    assert known.size_bytes == sum(lib.path.stat().st_size for lib in known.libraries)


def test_a_name_is_not_found_in_a_longer_one():
    assert linked(["nnpackBackend", "aten::native_layer_norm"]).missing == (
        *("aten::native_layer_norm", "nnpackBackend"),
    )


def test_a_program_of_delegates_alone_needs_no_kernels():
    both, alone = linked([XNNPACK, MORE]), linked([XNNPACK])
    assert sizes(both.libraries).keys() - sizes(alone.libraries).keys() == {"kernels_optimized"}
    (kernels,) = [lib for lib in both.libraries if lib not in alone.libraries]
    assert both.saved_without(kernels) == both.size_bytes - alone.size_bytes > 0
    # Every program needs the runtime.
    assert both.saved_without(next(iter(both.libraries))) == 0


@pytest.mark.skipif(not shutil.which("g++"), reason="there is no g++")
def test_the_libraries_are_enough_and_none_is_too_many(mlp_pte, tmp_path):
    names = {*names_of(mlp_pte), QUANTISED}
    known = linked(names)
    headers = next(iter(known.libraries)).path.parents[1] / "include"
    own = headers / "executorch/runtime/core/portable_type/c10"
    source, built = tmp_path / "registered.cpp", tmp_path / "registered.o"
    source.write_text(REGISTERED)
    flags = ["-std=c++17", "-DC10_USING_CUSTOM_GENERATED_MACROS", f"-I{headers}", f"-I{own}"]
    subprocess.run(["g++", *flags, "-c", str(source), "-o", str(built)], check=True)

    def code(without=None):
        """Link a program without a library, and run it beside copies of the others."""
        folder = tmp_path / (without.name if without else "all")
        folder.mkdir()
        for library in known.libraries:
            if library is not without:
                shutil.copy(library.path, folder)
        program = folder / "registered"
        words = [
            word
            for word in libraries.link_flags(known.libraries)
            if not without or word != f"-l{without.name}"
        ]
        start = ["g++", str(built), "-o", str(program), "-Wl,--allow-shlib-undefined"]
        made = subprocess.run([*start, *words[:-1], "-Wl,-rpath,$ORIGIN"], capture_output=True)
        return made.returncode or subprocess.run([program, *names], capture_output=True).returncode

    assert code() == 0
    assert {library.name for library in known.libraries if not code(library)} == set()


def test_a_budget_for_the_libraries_holds(tmp_path):
    module, inputs = nets.mlp()
    needed = linked([XNNPACK, MORE]).size_bytes
    path = tmp_path / "net.pte"
    Lowerer(["cpu"], budget={"runtime_bytes": needed}).lower(module, inputs).save(path)
    size = path.stat().st_size
    lowered = Lowerer(["cpu"], budget={"runtime_bytes": needed - 1}).lower(module, inputs)
    with pytest.raises(BudgetError) as caught:
        lowered.save(path)
    assert re.fullmatch(
        rf"budget: runtime_bytes is {needed - 1}, and its libraries have {needed}: "
        rf"libexecutorch\.so \d+; .*libexecutorch_kernels_optimized\.so \d+ for {MORE}; .*; "
        "delegate these, which etdev explain helps with, or raise runtime_bytes",
        str(caught.value),
    )
    assert (path.stat().st_size, [*tmp_path.iterdir()]) == (size, [path])


def test_a_budget_that_cant_be_checked_is_an_error(monkeypatch):
    lowered = Lowerer([], budget={"runtime_bytes": 1 << 40}).lower(*nets.mlp())
    assert lowered.to_executorch()
    monkeypatch.setattr(libraries, "installed", lambda: ())
    with pytest.raises(BudgetError, match="can't be checked: no library of this ExecuTorch has"):
        lowered.to_executorch()
    with pytest.raises(BudgetError, match="can't be checked by a partitioner"):
        etdev.partitioner([], budget={"runtime_bytes": 5})


def test_other_limits_hold_beside_it():
    budget = {"runtime_bytes": 1 << 40, "max_fallback_nodes": 0}
    with pytest.raises(BudgetError, match="0 nodes may be left to portable kernels"):
        Lowerer(["cpu"], budget=budget).plan(*nets.mlp())
