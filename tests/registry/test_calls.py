"""Calls: what a hook does besides answering, to the program it is shown and to the process."""

import builtins
import copy
import decimal
import gc
import importlib
import locale
import logging
import os
import random
import resource
import signal
import socket
import sys
import tempfile
import threading
import time
import warnings
from asyncio import CancelledError
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch
from executorch.exir import to_edge
from models import foreign
from models.small import PAIR, AddMul
from torch import fx, nn
from torch._subclasses import FakeTensorMode
from torch.overrides import BaseTorchFunctionMode

from etdev import Claim, Device, Group, KeepWhole, Lowerer, hookimpl
from etdev.errors import ClaimError, EtdevError, EtdevWarning, PluginError
from etdev.graph.method import MethodGraph
from etdev.registry import answers
from etdev.registry.selection import from_object
from etdev.registry.surroundings import Surroundings
from etdev.schema.device import Probe

PUT_BACK = "put it back before the hook returns, as with a context manager"


class Net(nn.Module):
    """Weights, a buffer that is written, and a branch."""

    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(4, 4)
        self.register_buffer("steps", torch.zeros(1))

    def forward(self, x):
        self.steps.add_(1)
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (self.linear(x),))


@pytest.fixture(scope="module")
def program():
    exported = torch.export.export(Net(), (torch.ones(2, 4),))
    return to_edge(exported).exported_program()


@pytest.fixture
def graph(program):
    return MethodGraph(copy.deepcopy(program), "forward")


def ask(graph, act):
    """Ask a plugin that acts on the program and claims nothing."""

    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, program):
            act(program)

    return answers.claim_nodes(from_object(Plugin()), graph, {}, {})


def ask_all(plugin, graph):
    """Ask a plugin several hooks, of which it has one."""
    answers.claim_nodes(plugin, graph, {}, {})
    answers.keep_whole(plugin, graph.program, "forward")
    answers.probe(plugin)


def node(program):
    """A computing node."""
    calls = (n for n in program.graph.nodes if n.op == "call_function")
    return next(n for n in calls if "add" in n.name or "relu" in n.name)


def replace_argument(program):
    first = node(program)
    first.args = (*first.args[:-1], next(iter(program.graph.nodes)))


def rewire_branch(program):
    inner = node(program.graph_module.submodule_0)
    inner.args = (inner.args[0], 3)


def rename_output(program):
    program.graph_signature.output_specs[-1].arg.name = "other"


@pytest.mark.parametrize(
    ("act", "what"),
    [
        (lambda p: p.graph.call_function(torch.relu, (node(p),)), "the graph"),
        (replace_argument, "the arguments of 'aten_add_tensor'"),
        (lambda p: setattr(node(p), "target", torch.add), "the op of 'aten_add_tensor'"),
        (lambda p: node(p).meta.update(tag=1), "meta['tag'] of 'aten_add_tensor'"),
        (lambda p: node(p).meta.update(val=None), "meta['val'] of 'aten_add_tensor'"),
        (lambda p: node(p).meta.pop("val"), "meta['val'] of 'aten_add_tensor'"),
        (rewire_branch, "the arguments of 'aten_add_tensor'"),
        (rename_output, "the signature"),
        (lambda p: p.state_dict.pop("steps"), "the state 'steps'"),
    ],
)
def test_a_program_that_was_changed_is_refused(graph, act, what):
    with pytest.raises(ClaimError) as caught:
        ask(graph, act)
    assert str(caught.value) == (
        f"a: claim_nodes changed {what} of method 'forward'; look at the program, don't change it"
    )


def zero(tensor):
    with torch.no_grad():
        tensor.zero_()


@pytest.mark.parametrize(
    "write",
    [
        zero,
        lambda tensor: tensor.data.zero_(),
        lambda tensor: tensor.detach().numpy().fill(3),
        lambda tensor: tensor.untyped_storage().fill_(7),
    ],
)
@pytest.mark.parametrize("shape", [(4,), (64, 64), (64, 4, 3, 3)])
def test_weights_that_were_written_are_refused(shape, write):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            # Not contiguous, and a part of a larger tensor.
            self.weight = nn.Parameter(torch.rand(2, *shape)[1].transpose(0, -1))

        def forward(self, x):
            return x * self.weight

    program = torch.export.export(Scale(), (torch.ones(shape).transpose(0, -1),))
    graph = MethodGraph(to_edge(program).exported_program(), "forward")
    with pytest.raises(ClaimError) as caught:
        ask(graph, lambda program: write(program.state_dict["weight"]))
    assert str(caught.value) == (
        "a: claim_nodes changed the values of 'weight' of method 'forward'; the model has lost "
        "them, load it again; and change a clone of them in the hook"
    )


def test_what_is_only_read_is_no_change(graph):
    def read(program):
        copy.deepcopy(program)
        program.module()
        str(program)
        [value.sum() for value in program.state_dict.values()]
        program.graph.erase_node(program.graph.call_function(torch.relu, (node(program),)))
        first = node(program)
        before, meta = first.args, first.meta["val"]
        first.args = before[::-1]
        first.args = before
        del first.meta["val"]
        first.meta["val"] = meta

    assert ask(graph, read) == ()


def test_the_delegate_of_another_is_not_changed():
    own = MethodGraph(foreign.partly_lowered(), "forward")

    def act(program):
        module = next(m for m in program.graph_module.children() if hasattr(m, "compile_specs"))
        module._processed_bytes = b""

    with pytest.raises(ClaimError, match="changed a delegate that the program came with of method"):
        ask(own, act)


@pytest.mark.parametrize("given", ["taken", "partitions"])
def test_the_tables_of_the_host_cant_be_written(graph, given):
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, taken, partitions):
            {"taken": taken, "partitions": partitions}[given]["x"] = "a"

    with pytest.raises(PluginError, match="a: claim_nodes raised TypeError: 'mappingproxy'"):
        answers.claim_nodes(from_object(Plugin()), graph, {}, {})


@pytest.mark.parametrize("hook", ["prepare", "keep_whole"])
def test_the_exported_program_of_the_caller_stays(hook):
    class Plugin:
        name = "a"

    def act(self, program):
        zero(program.state_dict["linear.weight"])

    act.__name__ = hook
    setattr(Plugin, hook, hookimpl(act))
    cure = "the model has lost them, load it again; and change a clone of them in the hook"
    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(Net(), (torch.ones(2, 4),))
    what = "the values of 'linear.weight' of method 'forward'"
    assert str(caught.value) == f"a: {hook} changed {what}; {cure}"


def test_prepare_that_changes_the_graph_in_place_is_refused():
    class Plugin:
        name = "a"

        @hookimpl
        def prepare(self, program):
            first = node(program)
            first.replace_all_uses_with(first.args[0])
            program.graph.erase_node(first)
            return program

    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(nn.Sequential(nn.ReLU(), nn.ReLU()), (torch.ones(2, 4),))
    assert str(caught.value) == (
        "a: prepare changed the graph of method 'forward'; "
        "change a copy.deepcopy of the program and return that"
    )


def claim_adds(program):
    groups = [Group([n]) for n in program.graph.nodes if "add" in n.name]
    return Claim("XnnpackBackend", groups, merge=False)


@pytest.mark.parametrize("hook", ["claim_constants", "resolve_device", "device_caveat"])
def test_hooks_that_are_asked_for_each_partition_are_watched_together(hook):
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, program):
            return claim_adds(program)

    def act(self, program, partition):
        program.graph.output_node().meta["tag"] = 1

    setattr(Plugin, hook, hookimpl(act))
    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(AddMul(), PAIR)
    assert str(caught.value) == (
        f"a: {hook} changed meta['tag'] of 'output' of method 'forward'; "
        "look at the program, don't change it"
    )


def filters():
    warnings.filterwarnings("ignore", message="never said")


def enter(make):
    """What enters a context and stays in it."""
    return lambda: KEPT.append(make()) or KEPT[-1].__enter__()


KEPT = []


def fewer_files():
    resource.setrlimit(resource.RLIMIT_NOFILE, (250, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))


def sys_meta_path():
    sys.meta_path.append(type("Finder", (), {"find_spec": staticmethod(lambda *_: None)}))


def other_locale():
    return "C" if locale.setlocale(locale.LC_ALL) != "C" else "C.UTF-8"


GLOBALS = {
    "torch's default dtype from torch.float32 to torch.float64":
        lambda: torch.set_default_dtype(torch.float64),
    "torch's default device from cpu to meta": lambda: torch.set_default_device("meta"),
    "torch's grad mode from True to False": lambda: torch.set_grad_enabled(False),
    "torch's deterministic mode from 0 to 2": lambda: torch.use_deterministic_algorithms(True),
    "torch's precision of float32 products from highest to medium":
        lambda: torch.set_float32_matmul_precision("medium"),
    "torch's number of threads from {threads} to 3": lambda: torch.set_num_threads(3),
    "torch's autocast on cpu from (False, torch.bfloat16) to (True, torch.bfloat16)":
        lambda: torch.set_autocast_enabled("cpu", True),
    "torch's inference mode from False to True": enter(lambda: torch.inference_mode()),
    "torch's dispatch modes": enter(lambda: FakeTensorMode()),
    "torch's function modes": enter(lambda: BaseTorchFunctionMode()),
    "torch's anomaly mode from (False, True) to (True, True)":
        lambda: torch.autograd.set_detect_anomaly(True),
    "torch.backends.mkldnn.enabled from True to False":
        lambda: torch.backends.mkldnn.set_flags(False),
    "torch.backends.cuda.math_sdp from True to False":
        lambda: torch.backends.cuda.enable_math_sdp(False),
    "torch's repeated warnings from False to True": lambda: torch.set_warn_always(True),
    "the flushing of denormal numbers from False to True": lambda: torch.set_flush_denormal(True),
    "NumPy's errors (divide)": lambda: np.seterr(divide="raise"),
    "NumPy's way of printing (precision)": lambda: np.set_printoptions(precision=1),
    "torch.backends.cudnn.benchmark from False to True":
        lambda: torch.backends.cudnn.set_flags(_benchmark=True),
    "the working directory from {cwd} to /": lambda: os.chdir("/"),
    "the environment (ETDEV_A, HOME)":
        lambda: os.environ.update(ETDEV_A="1", HOME="/nowhere"),
    "the environment (PATH)": lambda: os.environ.pop("PATH"),
    "sys.stdout": lambda: setattr(sys, "stdout", sys.stderr),
    "sys.stdin": lambda: setattr(sys, "stdin", None),
    "sys.path": lambda: sys.path.insert(0, "/"),
    "sys.meta_path": sys_meta_path,
    "sys.argv": lambda: sys.argv.append("--fast"),
    "sys.excepthook": lambda: setattr(sys, "excepthook", print),
    "sys.unraisablehook": lambda: setattr(sys, "unraisablehook", print),
    "threading.excepthook": lambda: setattr(threading, "excepthook", print),
    "sys.displayhook": lambda: setattr(sys, "displayhook", print),
    "warnings.showwarning": lambda: setattr(warnings, "showwarning", print),
    "logging's root logger": lambda: logging.getLogger().setLevel(logging.NOTSET),
    "the handlers of signals (SIGTERM)": lambda: signal.signal(signal.SIGTERM, signal.SIG_IGN),
    "the handlers of signals (SIGWINCH)": lambda: signal.signal(signal.SIGWINCH, signal.SIG_IGN),
    "the timer of this process": lambda: signal.setitimer(signal.ITIMER_REAL, 600),
    "the signals that are blocked":
        lambda: signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGUSR2]),
    "the limits of this process (RLIMIT_NOFILE)": fewer_files,
    "Python's limit of digits from 4300 to 0": lambda: sys.set_int_max_str_digits(0),
    "what torch holds (add)": lambda: setattr(torch, "add", None),
    "what torch.nn.modules.module.Module holds (eval)": lambda: setattr(nn.Module, "eval", None),
    "what torch's classes hold (torch.nn.modules.linear.Linear.forward)":
        lambda: setattr(nn.Linear, "forward", None),
    "what torch's classes hold (torch.fx.graph.Graph.lint)": lambda: delattr(fx.Graph, "lint"),
    "sys.modules (decimal, socket)":
        lambda: [sys.modules.pop("socket"), sys.modules.pop("decimal")],
    "what builtins holds (print)": lambda: setattr(builtins, "print", None),
    "torch.backends.quantized.engine from x86 to qnnpack":
        lambda: setattr(torch.backends.quantized, "engine", "qnnpack"),
    "Python's warning filters": filters,
    "the handler of SIGINT": lambda: signal.signal(signal.SIGINT, signal.SIG_IGN),
    "Python's garbage collector from True to False": gc.disable,
    "the thresholds of Python's garbage collector from {thresholds} to (9, 9, 9)":
        lambda: gc.set_threshold(9, 9, 9),
    "Python's recursion limit from {recursion} to 4321": lambda: sys.setrecursionlimit(4321),
    "Python's switch interval from 0.005 to 0.25": lambda: sys.setswitchinterval(0.25),
    "the precision of decimals from 28 to 3":
        lambda: setattr(decimal.getcontext(), "prec", 3),
    "the umask from {umask} to 007": lambda: os.umask(0o7),
    "the locale from {locale} to {other}": lambda: locale.setlocale(locale.LC_ALL, other_locale()),
    "the time limit of sockets from None to 3.0": lambda: socket.setdefaulttimeout(3),
    "the folder of temporary files from {tmp} to /": lambda: setattr(tempfile, "tempdir", "/"),
}  # fmt: skip


def umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def as_set(name):
    """What a locale is called once it is set."""
    before = locale.setlocale(locale.LC_ALL)
    try:
        return locale.setlocale(locale.LC_ALL, name)
    finally:
        locale.setlocale(locale.LC_ALL, before)


@pytest.mark.parametrize("what", GLOBALS)
@pytest.mark.parametrize("hook", ["claim_nodes", "probe"])
def test_what_a_hook_changes_in_the_process_is_put_back_and_refused(graph, what, hook):
    class Plugin:
        name = "a"

    setattr(Plugin, hook, hookimpl(lambda self: GLOBALS[what]()))
    before = Surroundings.now().values
    said = what.format(
        threads=torch.get_num_threads(),
        cwd=os.getcwd(),
        thresholds=gc.get_threshold(),
        recursion=sys.getrecursionlimit(),
        umask=f"{umask():03o}",
        tmp=tempfile.gettempdir(),
        locale=locale.setlocale(locale.LC_ALL),
        other=as_set(other_locale()),
    )
    plugin = from_object(Plugin())
    with pytest.raises(PluginError) as caught:
        ask_all(plugin, graph)
    place = " for method 'forward'" if hook == "claim_nodes" else ""
    assert str(caught.value) == f"a: {hook}{place} changed {said}; {PUT_BACK}"
    assert Surroundings.now().values == before


def test_a_hook_that_redirects_a_standard_stream_is_refused(graph):
    kept = os.dup(2)

    def act(program):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, 2)
        os.close(null)

    try:
        with pytest.raises(PluginError, match="changed the files of the standard streams"):
            ask(graph, act)
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def test_a_check_of_keep_whole_that_changes_a_node_is_refused_and_the_node_put_back():
    def when(node):
        node.meta.clear()
        return True

    wish = KeepWhole([torch.ops.aten.add.Tensor], when)
    with pytest.raises(PluginError) as caught:
        Lowerer([hooked("keep_whole", lambda self: wish)]).plan(AddMul(), PAIR)
    assert str(caught.value) == (
        "a: keep_whole's check of 'add' changed its meta in method 'forward'; "
        "look at the node, don't change it"
    )


def test_a_program_that_torch_refuses_is_no_answer_to_prepare():
    def prepare(self, program):
        changed = copy.deepcopy(program)
        output = changed.graph.output_node()
        output.args = (output.args[0] * 2,)
        return changed

    with pytest.raises(PluginError, match="a: prepare returned for method 'forward' what is not a"):
        Lowerer([hooked("prepare", prepare)]).plan(AddMul(), PAIR)


def test_a_container_that_fails_when_it_is_read_is_the_plugins():
    class Broken:
        def __iter__(self):
            raise RuntimeError("odd")

    with pytest.raises(PluginError, match="a: claim_nodes raised RuntimeError: odd"):
        Lowerer([hooked("claim_nodes", lambda self: Broken())]).plan(AddMul(), PAIR)


def test_a_hook_that_raises_leaves_the_process_as_it_was(graph):
    def act(program):
        torch.set_default_dtype(torch.float64)
        raise KeyError("aten.add")

    with pytest.raises(PluginError, match="claim_nodes raised KeyError"):
        ask(graph, act)
    assert torch.get_default_dtype() == torch.float32


class Unlike(BaseException):
    """Not an Exception, and nothing that ends a process."""


@pytest.mark.parametrize("error", [GeneratorExit("x"), Unlike("x"), CancelledError("x")])
def test_whatever_a_hook_raises_is_the_plugins(graph, error):
    def act(program):
        raise error

    name = type(error).__name__
    with pytest.raises(PluginError, match=f"a: claim_nodes raised {name}: x for method 'forward'"):
        ask(graph, act)


@pytest.mark.parametrize(
    ("answer", "text"),
    [("x" * 1_000_000, "'" + "x" * 399 + " ..."), ("a\nb", "'a\\nb'")],
)
def test_an_answer_of_another_kind_is_shown_in_a_line(graph, answer, text):
    plugin = from_object(Returns(answer))
    with pytest.raises(PluginError) as caught:
        answers.keep_whole(plugin, graph.program, "forward")
    assert str(caught.value) == f"a: keep_whole returned {text}; return KeepWhole"


def test_an_answer_that_cant_show_itself_is_named_by_its_class(graph):
    class Silent:
        def __repr__(self):
            raise ValueError

    with pytest.raises(PluginError, match="returned an object of Silent; return KeepWhole"):
        answers.keep_whole(from_object(Returns(Silent())), graph.program, "forward")


def hooked(name, body):
    """A plugin with one hook."""
    return type("Plugin", (), {name: hookimpl(body), "name": "a"})()


class Returns:
    """Answers keep_whole with something."""

    name = "a"

    def __init__(self, answer):
        self.answer = answer

    @hookimpl
    def keep_whole(self):
        return self.answer


SETS_ENVIRONMENT = "import os; os.environ['NOISY'] = '1'"
NOISY = "changed the environment (NOISY) as noisy_library was imported"
BEFOREHAND = "import it beforehand if others need it as it was"
FILTER = "import warnings; warnings.filterwarnings('ignore', message='noisy')"
IGNORE = "import warnings; warnings.simplefilter('ignore')"


@pytest.fixture
def library(tmp_path, monkeypatch):
    """Writes a module, which a hook may import; what it changes is put back after the test."""
    before = Surroundings.now().values
    monkeypatch.syspath_prepend(tmp_path)
    paths = list(sys.path)

    def write(text):
        (tmp_path / "noisy_library.py").write_text(text)
        importlib.invalidate_caches()

    yield write
    sys.modules.pop("noisy_library", None)
    for setting, value in before.items():
        if setting.name == "sys.path":
            assert list(sys.path) == paths or paths == sys.path[:-1] or paths == sys.path[1:]
        elif setting.read() != value:
            setting.write(value)


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (SETS_ENVIRONMENT, "the environment (NOISY)"),
        (IGNORE, "Python's warning filters (put back)"),
        ("import warnings; warnings.resetwarnings()", "Python's warning filters (put back)"),
        ("import sys; sys.path.insert(0, '/')", "sys.path"),
        ("import logging; logging.getLogger().setLevel(1)", "logging's root logger"),
        (FILTER, ""),
        ("import sys; sys.path.append('/')", ""),
        ("import logging; logging.getLogger().addHandler(logging.NullHandler())", ""),
    ],
)
def test_what_a_module_changes_when_it_is_imported_is_named(graph, library, text, changed):
    library(text)

    def act(program):
        import noisy_library  # noqa: F401

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert ask(graph, act) == ()
    text = "a: claim_nodes for method 'forward' changed {} as noisy_library was imported; {}"
    expected = [text.format(changed, BEFOREHAND)] if changed else []
    assert [str(item.message) for item in caught] == expected


@pytest.mark.parametrize("order", ["before", "after"])
@pytest.mark.parametrize(
    ("change", "text"),
    [
        (filters, "Python's warning filters"),
        (lambda: sys.path.append("/"), "sys.path"),
        (lambda: logging.getLogger().setLevel(1), "logging's root logger"),
    ],
)
def test_an_import_is_no_excuse_for_what_the_hook_does(graph, library, change, text, order):
    library("")
    before = Surroundings.now().values

    def act(program):
        if order == "before":
            change()
        import noisy_library  # noqa: F401

        if order == "after":
            change()

    with pytest.raises(PluginError) as caught:
        ask(graph, act)
    assert str(caught.value) == f"a: claim_nodes for method 'forward' changed {text}; {PUT_BACK}"
    assert Surroundings.now().values == before


def test_what_is_changed_for_the_time_of_an_import_is_no_change(graph, library):
    library(FILTER)

    def act(program):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import noisy_library  # noqa: F401

    assert ask(graph, act) == ()


def test_a_module_that_an_import_takes_away_is_no_fault(graph, library):
    library("import sys; sys.modules.pop('this', None); sys.modules['that'] = sys")
    sys.modules["this"] = sys

    def act(program):
        import noisy_library  # noqa: F401

    assert ask(graph, act) == ()
    assert sys.modules.pop("that") is sys


def test_of_many_names_a_message_has_some(graph):
    gone = {name: module for name, module in sys.modules.items() if name.startswith("sympy.")}

    def act(program):
        for name in gone:
            del sys.modules[name]

    with pytest.raises(PluginError) as caught:
        ask(graph, act)
    names = f"{', '.join(sorted(gone)[:8])} and {len(gone) - 8} more"
    assert f"changed sys.modules ({names}); " in str(caught.value)
    assert gone.items() <= sys.modules.items()


def begun(act, **kind):
    thread = threading.Thread(target=act, name="heartbeat", **kind)
    thread.start()
    return thread


@pytest.mark.parametrize("hook", ["claim_nodes", "resolve_device"])
def test_a_thread_that_is_left_running_is_named_once(hook):
    stop = threading.Event()

    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self, program):
            if hook == "claim_nodes":
                begun(stop.wait)
            return claim_adds(program)

        @hookimpl
        def resolve_device(self):
            if hook == "resolve_device":
                begun(stop.wait)

    with pytest.warns(EtdevWarning) as caught:
        Lowerer([Plugin()]).plan(AddMul(), PAIR)
    stop.set()
    assert [str(item.message) for item in caught if item.category is EtdevWarning] == [
        f"a: {hook} for method 'forward' left threads running that Python waits for at its end: "
        "heartbeat; join them before the hook returns, or make them daemons"
    ]


def test_threads_that_end_with_python_are_the_plugins_own(graph):
    stop = threading.Event()
    kept = []

    def act(program):
        begun(stop.wait, daemon=True)
        begun(lambda: time.sleep(0.01))
        kept.append(ThreadPoolExecutor(1))
        kept[-1].submit(int).result()

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(graph, act) == ()
    stop.set()
    kept.pop().shutdown()


def test_who_began_a_thread_is_not_guessed(graph):
    stop = threading.Event()
    begun(stop.wait)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ask(graph, lambda program: begun(stop.wait) and None) == ()
    stop.set()


def test_a_lowering_leaves_the_random_numbers_where_they_were():
    class Plugin:
        name = "a"

        @hookimpl
        def claim_nodes(self):
            random.random(), torch.rand(3)

    model = Net()
    before = (random.getstate(), torch.get_rng_state())
    Lowerer([Plugin()]).lower(model, (torch.ones(2, 4),))
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])


def raising(*items):
    yield from items
    raise KeyError("aten.add")


@pytest.mark.parametrize(
    ("hook", "answer", "message"),
    [
        ("claim_nodes", lambda: raising(Claim("B", [])), "claim_nodes raised KeyError: 'aten.add'"),
        ("claim_nodes", lambda: 3, "claim_nodes returned 3"),
        ("claim_nodes", lambda: True, "claim_nodes returned True"),
        ("claim_nodes", lambda: [Group([])], "claim_nodes for method 'forward': Group.nodes is"),
        ("claim_nodes", lambda: Device("cuda", 300), "claim_nodes for method 'forward': index 300"),
        ("claim_nodes", lambda: Device("gpu"), "claim_nodes for method 'forward': unknown type"),
        ("keep_whole", lambda: KeepWhole(["aten.mm"]), "keep_whole returned 'aten.mm'"),
        ("probe", lambda: Probe(["gpu"]), "probe: unknown type 'gpu'"),
        ("probe", lambda: Probe(["cuda:300"]), "probe: index 300"),
    ],
)
def test_what_was_raw_names_plugin_and_hook(graph, hook, answer, message):
    class Plugin:
        name = "a"

    setattr(Plugin, hook, hookimpl(lambda self: answer()))
    plugin = from_object(Plugin())
    with pytest.raises(EtdevError) as caught:
        ask_all(plugin, graph)
    assert str(caught.value).startswith(f"a: {message}")


def test_a_check_of_keep_whole_that_raises_is_named_with_its_node():
    class Plugin:
        name = "a"

        @hookimpl
        def keep_whole(self):
            return KeepWhole([torch.ops.aten.linear.default], lambda node: node.meta["absent"])

    with pytest.raises(PluginError) as caught:
        Lowerer([Plugin()]).plan(nn.Linear(4, 4), (torch.ones(2, 4),))
    assert str(caught.value) == (
        "a: keep_whole's check of 'linear' raised KeyError: 'absent' for method 'forward'; "
        "the cause is chained below"
    )
