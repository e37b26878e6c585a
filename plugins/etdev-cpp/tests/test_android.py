"""Targets with Android: a build of ExecuTorch for it, and the NDK. Both are stand-ins here."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import pytest
import torch
from etdev_cpp import place
from etdev_cpp.ndk import VARIABLE, Android
from support.shell import fails, succeeds
from torch import nn

from etdev import Lowerer
from etdev.errors import PluginError, RunError
from etdev.schema.target import Target

PACKAGE = Path(find_spec("executorch").submodule_search_locations[0])
REGISTRY = """
[plugins.cpu]

[targets.phone]
triple = "aarch64-linux-android"
on = "adb"
executorch = "android"

[targets.wheel]
triple = "aarch64-linux-android"
on = "adb"
"""
# Names of libraries in a build whose backends are libraries of their own, and this machine's.
LIBRARIES = {
    # Runtime and kernels are one library there.
    "libexecutorch.so": "libexecutorch_kernels_optimized.so",
    "libxnnpack_executorch_backend.so": "libexecutorch_backend_xnnpack.so",
    "libneuron_backend.so": "libexecutorch_etdump.so",
}
COMPILER = "toolchains/llvm/prebuilt/linux-x86_64/bin/aarch64-linux-android26-clang++"


@pytest.fixture
def build(tmp_path, monkeypatch):
    """A stand-in for a build of ExecuTorch for Android, and for the NDK: names without Android."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "registry.toml").write_text(REGISTRY)
    lib = tmp_path / "android/lib"
    lib.mkdir(parents=True)
    (tmp_path / "android/include").symlink_to(PACKAGE / "include")
    for name, own in LIBRARIES.items():
        (lib / name).symlink_to(PACKAGE / "lib" / own)
    compiler = tmp_path / "ndk" / COMPILER
    compiler.parent.mkdir(parents=True)
    compiler.write_text("#!/bin/sh\necho clang\n")
    compiler.chmod(0o755)
    monkeypatch.setenv(VARIABLE, str(tmp_path / "ndk"))
    return lib


def test_sizes_and_names_are_those_of_the_build_for_android(build, mlp_pte):
    told = succeeds("size", mlp_pte, "--target", "phone")
    assert "libxnnpack_executorch_backend.so" in told
    loads = "an app loads each with System.loadLibrary before the program: "
    assert f"{loads}executorch, xnnpack_executorch_backend\n" in told
    assert "neuron" not in told
    (build / "libxnnpack_executorch_backend.so").unlink()
    told = succeeds("size", mlp_pte, "--target", "phone")
    assert "no library of this ExecuTorch has XnnpackBackend" in told
    there = Target("aarch64-linux-android", "adb", executorch=str(build.parent))
    with pytest.raises(PluginError, match="XnnpackBackend, which the target's ExecuTorch lacks"):
        Lowerer(["cpu"], target=there).plan(torch.export.export(nn.ReLU(), (torch.ones(2),)))


def test_an_app_has_the_compiler_of_the_ndk_and_loads_each_library(build, mlp_pte, tmp_path):
    succeeds("new app", mlp_pte, "app", "--target", "phone")
    names = ("toolchain.cmake", "build.sh", "README.md")
    texts = {name: Path("app", name).read_text() for name in names}
    toolchain = texts["toolchain.cmake"]
    assert "set(ANDROID_ABI arm64-v8a)\nset(ANDROID_PLATFORM android-26)" in toolchain
    assert "$ENV{ANDROID_NDK}/build/cmake/android.toolchain.cmake" in toolchain
    assert not Path("app/android.cmake").exists()
    assert f"{tmp_path}/ndk/{COMPILER} -static-libstdc++" in texts["build.sh"]
    assert "-lxnnpack_executorch_backend" in texts["build.sh"]
    assert "adb push build /data/local/tmp/" in texts["README.md"]
    assert 'System.loadLibrary("xnnpack_executorch_backend");' in texts["README.md"]
    assert "glibc" not in texts["README.md"]


def test_a_build_for_glibc_is_never_taken_for_android(build, mlp_pte, monkeypatch):
    refused = "target: pip has no wheel of executorch for aarch64-linux-android; name the folder "
    assert fails("size", mlp_pte, "--target", "wheel").startswith(refused)
    assert fails("new app", mlp_pte, "--target", "wheel").startswith(refused)
    monkeypatch.delenv(VARIABLE)
    with pytest.raises(RunError, match="is missing: aarch64-linux-android26-clang\\+\\+") as caught:
        place.Place(Target("aarch64-linux-android")).compiler()
    assert caught.value.cure == "install Android's NDK, and name its folder with ANDROID_NDK"
    with pytest.raises(RunError, match="and not of Android"):
        place.Place(Target("aarch64-linux-android"), "cortex-a53").command(Path("runner"))


@pytest.mark.parametrize(
    ("triple", "found"),
    [
        ("aarch64-linux-android", ("arm64-v8a", 26)),
        ("aarch64-linux-android33", ("arm64-v8a", 33)),
        ("aarch64-unknown-linux-android", ("arm64-v8a", 26)),
        ("armv7a-linux-androideabi24", ("armeabi-v7a", 24)),
        ("aarch64-linux-gnu", None),
    ],
)
def test_triples_of_android(triple, found):
    android = Android.of(triple)
    assert (android and (android.abi, android.api)) == found
