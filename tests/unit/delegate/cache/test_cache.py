"""The cache in lowerings: hits give the same .pte, and a cache that fails costs no lowering."""

import itertools
import threading
import time
import warnings
from collections import Counter

import fsspec
import pytest
import torch
from etdev_cpu import compiler
from executorch.backends.xnnpack.partition.xnnpack_partitioner import XnnpackPartitioner
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from fsspec.implementations.memory import MemoryFileSystem
from support.models import nets
from support.toys import Takes
from support.toys.accelerator import Accelerator
from torch import nn

import etdev
from etdev import Bypass, CacheSettings, EtdevWarning, Lowerer, hookimpl
from etdev.delegate.cache.entry import CacheEntry
from etdev.delegate.compiler_calls import Call
from etdev.errors import CacheError

X = torch.randn(3, 8)
# Two partitions, exported once.
MLP = torch.export.export(*nets.mlp())


@pytest.fixture(autouse=True)
def _fresh_process(monkeypatch):
    """What XNNPACK's compiler remembers of other lowerings of this process."""
    monkeypatch.setattr(compiler, "_TEMPLATES", {})


def entries(folder):
    """The files of results; others are a compiler's own."""
    files = sorted(folder.rglob("*.entry"))
    return [file for file in files if CacheEntry.from_bytes(file.read_bytes(), "test").content]


def states(lowered):
    return Counter(outcome.state for outcome in lowered.outcomes)


def bytes_of(lowered):
    return lowered.to_executorch().buffer


@pytest.fixture
def compiles(monkeypatch):
    """The calls of backends, as they come."""
    calls, compile_call = [], Call.compile

    def spy(call, *limits):
        calls.append(call)
        return compile_call(call, *limits)

    monkeypatch.setattr(Call, "compile", spy)
    return calls


def several_methods():
    net = nn.Sequential(nn.Linear(8, 4), nn.Softmax(-1), nn.Linear(4, 2))
    return {"first": (net, (torch.randn(4, 8),)), "second": (net, (torch.randn(6, 8),))}


class Pooled(nn.Module):
    """A convolution in channels_last, a dynamic batch and a buffer that is written."""

    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3)
        self.register_buffer("total", torch.zeros(8))

    def forward(self, x):
        y = self.conv(x).relu().mean((2, 3))
        self.total.add_(y.sum(0))
        return y + self.total


def pooled():
    x = torch.randn(4, 3, 8, 8).to(memory_format=torch.channels_last)
    return Pooled().eval(), (x,), ({0: torch.export.Dim("n", min=2, max=9)},)


MODELS = {
    "mlp": lambda: nets.mlp(),
    "quantised": lambda: nets.quantised_conv_net()[:2],
    "several methods": lambda: (several_methods(), None),
    "dynamic": pooled,
}


# Two plugins with one of the models; with all of them under `make suites`.
CASES = [
    pytest.param(
        plugins,
        model,
        id=f"{'+'.join(plugins)}-{name}",
        marks=[pytest.mark.suite] if len(plugins) > 1 and name != "mlp" else [],
    )
    for plugins in (["cpu"], ["openvino", "cpu"])
    for name, model in MODELS.items()
]


@pytest.mark.slice("openvino+cpu-mlp", "cpu-mlp")
@pytest.mark.parametrize(("plugins", "model"), CASES)
def test_a_hit_gives_the_same_bytes_and_compiles_nothing(model, plugins, tmp_path, compiles):
    source, inputs, *shapes = model()
    given = {"dynamic_shapes": shapes[0]} if shapes else {}
    cold = Lowerer(plugins, cache=tmp_path).lower(source, inputs, **given)
    assert states(cold) == {"compiled": len(cold.plan.partitions)}
    count = len(compiles)
    assert count > 0
    warm = Lowerer(plugins, cache=tmp_path).lower(source, inputs, **given)
    assert len(compiles) == count
    assert states(warm) == {"hit": len(cold.plan.partitions)}
    assert bytes_of(warm) == bytes_of(cold)
    assert [outcome.key for outcome in warm.outcomes] == [o.key for o in cold.outcomes]


def test_an_adapted_partitioner_is_cached(tmp_path):
    def lowered(cache):
        plugin = etdev.adapt(XnnpackPartitioner(), name="adapted")
        return Lowerer([plugin], cache=cache).lower(MLP)

    cold, warm = lowered(tmp_path), lowered(tmp_path)
    assert (set(states(cold)), set(states(warm))) == ({"compiled"}, {"hit"})
    assert bytes_of(cold) == bytes_of(warm) == bytes_of(lowered(False))


def test_one_changed_weight_compiles_one_partition(tmp_path):
    model, inputs = nets.mlp()
    Lowerer(["cpu"], cache=tmp_path).lower(model, inputs)
    with torch.no_grad():
        next(iter(model.parameters())).view(torch.int32).flatten()[-1].bitwise_xor_(1)
    warm = Lowerer(["cpu"], cache=tmp_path).lower(model, inputs)
    assert states(warm) == {"compiled": 1, "hit": 1}
    assert bytes_of(warm) == bytes_of(Lowerer(["cpu"], cache=False).lower(model, inputs))


def chain(count=3):
    """Linear layers of one size, with nodes between them that XNNPACK doesn't have."""
    torch.manual_seed(count)
    layers = [layer for _ in range(count) for layer in (nn.Linear(8, 8), nn.LayerNorm(8))]
    return nn.Sequential(*layers).requires_grad_(False)


@pytest.fixture
def own_compiles(monkeypatch):
    """The programs that XNNPACK's own compiler is given."""
    programs, compiled = [], compiler._compiled

    def spy(program, specs):
        programs.append(program)
        return compiled(program, specs)

    monkeypatch.setattr(compiler, "_compiled", spy)
    return programs


def test_changed_weights_compile_nothing_where_the_structure_is_known(tmp_path, own_compiles):
    model = chain()
    Lowerer(["cpu"], cache=tmp_path).lower(model, (X,))
    assert 0 < len(own_compiles) < 3
    compiler._TEMPLATES.clear()
    own_compiles.clear()
    with torch.no_grad():
        model[2].weight.add_(1)
    warm = Lowerer(["cpu"], cache=tmp_path).lower(model, (X,))
    assert (states(warm), own_compiles) == ({"compiled": 1, "hit": 2}, [])
    compiler._TEMPLATES.clear()
    assert bytes_of(warm) == bytes_of(Lowerer(["cpu"], cache=False).lower(model, (X,)))


def test_without_a_cache_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.setenv("ETDEV_CACHE", str(tmp_path))
    assert states(Lowerer(["cpu"], cache=False).lower(MLP)) == {"compiled": 2}
    assert list(tmp_path.iterdir()) == []
    Lowerer(["cpu"]).lower(MLP)
    assert len(entries(tmp_path)) == 2


def test_the_registry_names_the_folder(tmp_path, monkeypatch):
    monkeypatch.delenv("ETDEV_CACHE")
    registry = tmp_path / "registry.toml"
    folder = tmp_path / "kept"
    registry.write_text(f'[plugins.cpu]\n[cache]\nlocation = "{folder}"\nsize = "1 MiB"\n')
    Lowerer(["cpu"], registry=registry).lower(MLP)
    assert len(entries(folder)) == 2


def test_the_folder_keeps_to_its_size(tmp_path):
    settings = CacheSettings(str(tmp_path), size=5000)
    for seed in range(6):
        torch.manual_seed(seed)
        Lowerer(["cpu"], cache=settings).lower(nn.Linear(8, 4), (X,))
        assert sum(path.stat().st_size for path in tmp_path.rglob("*.entry")) <= 5000
    assert len(list(tmp_path.rglob("*.entry"))) > 1


class Versionless(BackendDetails):
    """A backend that no distribution has; it can't be run."""

    @staticmethod
    def preprocess(edge_program, compile_specs):
        return PreprocessResult(processed_bytes=b"fake")


class Tuned(Takes):
    @hookimpl
    def cache_key(self):
        return Bypass("kernels are tuned anew")


@pytest.mark.parametrize(
    ("plugin", "why"),
    [
        (Tuned("tuned", ("relu.default",)), "kernels are tuned anew"),
        (
            Accelerator(ops=("relu",), backend="Versionless"),
            "Versionless is not of an installed version of a distribution; "
            "the plugin can tell its version with cache_key",
        ),
    ],
)
def test_a_bypass_says_why(plugin, why, tmp_path):
    for _ in range(2):
        lowered = Lowerer([plugin], cache=tmp_path).lower(nn.ReLU(), (X,))
        (outcome,) = lowered.outcomes
        assert (outcome.state, outcome.why, outcome.key) == ("bypassed", why, "")
    assert list(tmp_path.rglob("*.entry")) == []


def damage(path, number):
    data = path.read_bytes()
    path.write_bytes(
        [data[:-1], data[: len(data) // 2], b"", b"etdev entry 0\n" + data, data[::-1]][number]
    )


def test_a_damaged_entry_is_compiled_again(tmp_path):
    cold = Lowerer(["cpu"], cache=tmp_path).lower(MLP)
    for number in range(5):
        damage(entries(tmp_path)[0], number)
        with pytest.warns(EtdevWarning, match="compile cache: "):
            again = Lowerer(["cpu"], cache=tmp_path).lower(MLP)
        assert states(again) == {"compiled": 1, "hit": 1}
        assert bytes_of(again) == bytes_of(cold)
    assert states(Lowerer(["cpu"], cache=tmp_path).lower(MLP)) == {"hit": 2}


def test_a_folder_that_can_not_be_used_is_one_warning(tmp_path):
    file = tmp_path / "file"
    file.touch()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        lowerer = Lowerer(["cpu"], cache=file)
        for _ in range(2):
            assert states(lowerer.lower(MLP)) == {"compiled": 2}
    ours = [str(w.message) for w in caught if issubclass(w.category, EtdevWarning)]
    assert len(ours) == 1
    assert "the cache folder can't be written" in ours[0]


NAMES = (f"memory://etdev-{number}" for number in itertools.count())


def remote(url, folder, timeout_s=20.0):
    return CacheSettings(url, folder=str(folder), timeout_s=timeout_s)


@pytest.mark.parametrize("scheme", ["memory", "file"])
def test_machines_share_a_url(scheme, tmp_path):
    url = next(NAMES) if scheme == "memory" else f"file://{tmp_path}/shared/deep"
    cold = Lowerer(["cpu"], cache=remote(url, tmp_path / "one")).lower(MLP)
    warm = Lowerer(["cpu"], cache=remote(url, tmp_path / "two")).lower(MLP)
    assert (states(cold), states(warm)) == ({"compiled": 2}, {"hit": 2})
    assert bytes_of(cold) == bytes_of(warm)
    # Also kept here now.
    assert len(entries(tmp_path / "two")) == 2


def test_a_damaged_entry_behind_a_url_is_compiled_again(tmp_path):
    url = next(NAMES)
    system, folder = fsspec.core.url_to_fs(url)
    cold = Lowerer(["cpu"], cache=remote(url, tmp_path / "one")).lower(MLP)
    for path in system.ls(folder, detail=False):
        system.pipe_file(path, system.cat_file(path)[:-1])
    with pytest.warns(EtdevWarning, match="checksum differs"):
        again = Lowerer(["cpu"], cache=remote(url, tmp_path / "two")).lower(MLP)
    assert states(again) == {"compiled": 2}
    assert bytes_of(again) == bytes_of(cold)
    # What was damaged is replaced.
    healed = Lowerer(["cpu"], cache=remote(url, tmp_path / "three")).lower(MLP)
    assert states(healed) == {"hit": 2}


class Hanging(MemoryFileSystem):
    """A server that never answers."""

    protocol = "hanging"
    released = threading.Event()

    def cat_file(self, *_, **__):
        self.released.wait()


def test_a_url_that_hangs_costs_its_time_limit_once(tmp_path):
    fsspec.register_implementation("hanging", Hanging, clobber=True)
    start = time.monotonic()
    with pytest.warns(EtdevWarning, match=r"hanging://x: can't be read in 0\.2 s"):
        lowered = Lowerer(["cpu"], cache=remote("hanging://x", tmp_path, 0.2)).lower(MLP)
    Hanging.released.set()
    assert states(lowered) == {"compiled": 2}
    assert time.monotonic() - start < 120
    assert len(entries(tmp_path)) == 2


@pytest.mark.parametrize("url", ["nosuch://bucket", "file:///dev/null/x"])
def test_a_url_that_can_not_be_reached_is_a_warning(url, tmp_path):
    with pytest.warns(EtdevWarning, match=f"compile cache: {url}: can't be"):
        lowered = Lowerer(["cpu"], cache=remote(url, tmp_path)).lower(MLP)
    assert states(lowered) == {"compiled": 2}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"size": "ten"}, "cache: 'ten' is not a size; write \"10 GiB\""),
        ({"timeout_s": 0}, "cache: 'timeout_s' must be > 0: 0"),
        ({"folders": "x"}, "cache.folders: is an unknown key; did you mean folder?"),
    ],
)
def test_settings_that_make_no_sense_are_named(given, message):
    with pytest.raises(CacheError) as error:
        Lowerer(["cpu"], cache=given)
    assert str(error.value) == message
