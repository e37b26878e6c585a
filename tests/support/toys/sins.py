"""Plugins that keep the contract of `etdev.testing`, and such as break one part of it each."""

from __future__ import annotations

import itertools
import os
import random
import time
from contextlib import ExitStack, contextmanager

import torch
from attrs import define, evolve, field, frozen
from executorch.exir._serialize._named_data_store import NamedDataStore
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from torch import nn

from etdev import Claim, Device, Group, Probe, Refusal, hookimpl
from etdev.graph import op_name


@define(eq=False)
class Adder:
    """Gives XNNPACK the float32 additions; keeps the contract."""

    etdev_api = 1
    # What subclasses leave out.
    ops = ("aten.add.Tensor",)
    looks_at_dtypes = True
    looks_at_alpha = True
    name: str = "adder"

    @hookimpl
    def claim_nodes(self, program, method, taken):
        import executorch.backends.xnnpack.xnnpack_preprocess  # noqa: F401

        nodes = calls(program)
        mine = [node for node in nodes if self.fits(node)]
        refusals = [Refusal(node, "op", op_name(node)) for node in nodes if node not in mine]
        return Claim("XnnpackBackend", [Group([node]) for node in mine], refusals)

    def fits(self, node):
        values = [getattr(argument, "meta", {}).get("val") for argument in node.args]
        right = all(getattr(value, "dtype", None) == torch.float32 for value in values)
        plain = not (self.looks_at_alpha and node.kwargs)
        return op_name(node) in self.ops and (right or not self.looks_at_dtypes) and plain

    @hookimpl
    def claim_constants(self, partition):
        return [constant for constant in partition.constants if not constant.mutated]

    @hookimpl
    def probe(self):
        return Probe()

    @hookimpl
    def payload_device(self):
        return Device("cpu")


def calls(program):
    return [node for node in program.graph.nodes if node.op == "call_function"]


@frozen
class Turn:
    """A call of `claim_nodes`, and what the plugin remembers of those before."""

    program: object
    method: str
    taken: dict
    memory: list


def with_claim(change):
    """An adder whose claim is changed by a function of the turn and the claim."""

    @define(eq=False)
    class Changed(Adder):
        memory: list = field(factory=list)

        @hookimpl
        def claim_nodes(self, program, method, taken):
            turn = Turn(program, method, taken, self.memory)
            return change(turn, super().claim_nodes(program, method, taken))

    return Changed


def nothing(turn, code, text=""):
    """A claim that refuses every node."""
    return Claim("XnnpackBackend", [], [Refusal(node, code, text) for node in calls(turn.program)])


def zeroes(turn, claim):
    for value in turn.program.state_dict.values():
        value.data.zero_()
    return claim


def rewires(turn, claim):
    calls(turn.program)[0].meta["mine"] = True
    return claim


def changes_dtype(turn, claim):
    torch.set_default_dtype(torch.float64)
    return claim


def contradicts(turn, claim):
    refusals = [Refusal(name, "op") for group in claim.groups for name in group.nodes]
    return Claim(claim.backend_id, claim.groups, refusals)


def one_group(turn, claim):
    return Claim(claim.backend_id, [Group([n for g in claim.groups for n in g.nodes])])


def borrows_a_code(turn, claim):
    return nothing(turn, "lost")


def names_strangers(turn, claim):
    return Claim(claim.backend_id, [Group(["aten_add_tensor_99"])])


def says_nothing(turn, claim):
    return Claim(claim.backend_id, claim.groups)


def prints(turn, claim):
    print("claiming")
    return claim


def writes(turn, claim):
    os.write(1, b"claiming")
    return claim


def tosses(turn, claim):
    groups = [group for group in claim.groups if random.random() < 0.5]
    mine = {name for group in groups for name in group.nodes}
    others = [node for node in calls(turn.program) if node.name not in mine]
    return Claim(claim.backend_id, groups, [Refusal(node, "op", "not today") for node in others])


ASKED = itertools.count(1)


def forgets_at_times(turn, claim):
    """Claim nothing once in 20 times, as a coin might fall that is seldom tossed."""
    return claim if next(ASKED) % 20 else nothing(turn, "op", "not today")


def saying(text):
    """A change that refuses with this text."""

    def change(turn, claim):
        refusals = [Refusal(refusal.node, "op", text) for refusal in claim.refusals]
        return Claim(claim.backend_id, claim.groups, refusals)

    return change


def takes_delegates(turn, claim):
    foreign = [node for node in calls(turn.program) if op_name(node) == "call_delegate"]
    groups = [*claim.groups, *(Group([node]) for node in foreign)]
    refusals = [refusal for refusal in claim.refusals if refusal.code == "op"]
    names = {node.name for node in foreign}
    return Claim(claim.backend_id, groups, [r for r in refusals if r.node not in names])


def is_fickle(turn, claim):
    """Take nothing of a method that was seen before."""
    turn.memory.append(turn.method)
    return nothing(turn, "mood") if turn.method in turn.memory[:-1] else claim


def is_timid(turn, claim):
    return nothing(turn, "busy") if turn.taken else claim


def forgets_the_method(turn, claim):
    """Remember what was taken of the first method, for all methods."""
    turn.memory.append(turn.method)
    return claim if turn.memory[0] == turn.method else nothing(turn, "method")


def orders_by_hashes(turn, claim):
    groups = [Group(group.nodes, str(hash(group.nodes))) for group in claim.groups]
    return Claim(claim.backend_id, groups, claim.refusals)


def sulks(turn, claim):
    """Never again want what another plugin once had."""
    turn.memory.extend(turn.taken)
    groups = [group for group in claim.groups if not set(turn.memory) & set(group.nodes)]
    kept = {name for group in groups for name in group.nodes}
    lost = [name for group in claim.groups for name in group.nodes if name not in kept]
    refusals = [*claim.refusals, *(Refusal(name, "sulking") for name in lost)]
    return Claim(claim.backend_id, groups, refusals)


class Freezer(Adder):
    @hookimpl
    def claim_constants(self, partition):
        return partition.constants


class Hookless:
    etdev_api = 1


class Later(Adder):
    etdev_api = 2


class Timeless(Adder):
    """Says nothing of the hooks that it was written for."""

    @property
    def etdev_api(self):
        raise AttributeError("etdev_api")


class Holder(Adder):
    """Puts state into delegates of XNNPACK, which can't write it."""

    ops = ("aten.add.Tensor", "aten.mul.Tensor")

    @hookimpl
    def claim_constants(self, partition):
        return [constant for constant in partition.constants if partition.may_hold(constant)]


class Slow(Adder):
    @hookimpl
    def probe(self):
        time.sleep(1.1)
        return Probe()


class Liar(Adder):
    @hookimpl
    def payload_device(self, backend_id, payload):
        return Device("cuda", 1)


class Busy(Adder):
    """Has a lock that it never gives back when its compiler fails."""

    busy = False

    @hookimpl
    def compile_context(self):
        return self._locked()

    @contextmanager
    def _locked(self):
        assert not self.busy, "the compiler is busy"
        self.busy = True
        yield
        self.busy = False


class Hurried(Adder):
    @hookimpl
    def compile_context(self):
        stack = ExitStack()
        stack.callback(lambda: torch.set_num_threads(torch.get_num_threads() + 1))
        return stack


@define(eq=False)
class Expectant(Adder):
    """Expects to get all nodes that it claims."""

    lost: dict = field(factory=dict)

    @hookimpl
    def claim_nodes(self, program, method, taken):
        claim = super().claim_nodes(program, method, taken)
        wishes = {name for group in claim.groups for name in group.nodes}
        self.lost[method] = sorted(wishes & set(taken))
        return claim

    @hookimpl
    def annotate(self, partition):
        assert not self.lost[partition.method], f"{self.lost[partition.method]} are lost"


class Greedy(Adder):
    """Takes any sum, and XNNPACK is given integers."""

    looks_at_dtypes = False


class Careless(Adder):
    """Forgets about alpha, which XNNPACK ignores."""

    looks_at_alpha = False


def compiler(name, compiled):
    """Make a backend whose compiler returns what a function does."""

    def preprocess(edge_program, compile_specs):
        return compiled()

    return type(name, (BackendDetails,), {"preprocess": staticmethod(preprocess)})


def salted():
    """Compile to weights that have other bytes each time."""
    store = NamedDataStore()
    store.add_named_data(os.urandom(16).hex(), b"salt")
    return PreprocessResult(b"", data_store_output=store.get_named_data_store_output())


def chatty():
    """Write to standard output, and compile."""
    os.write(1, b"compiling")
    return PreprocessResult(b"a sum")


# ExecuTorch finds a backend by the name of its class, as long as there is one.
BACKENDS = (
    compiler("Dice", lambda: PreprocessResult(b"dice" + os.urandom(1))),
    compiler("Salted", salted),
    compiler("Hashed", lambda: PreprocessResult(str(hash("a sum")).encode())),
    compiler("Dated", lambda: PreprocessResult(str(int(time.time())).encode())),
    compiler("Chatty", chatty),
    # For partitions of one sum, of which nothing needs to be said.
    compiler("Sums", lambda: PreprocessResult(b"a sum")),
)


def on_backend(name):
    """An adder for another backend, a delegate for each sum."""

    class Other(Adder):
        @hookimpl
        def claim_nodes(self, program, method, taken):
            claim = super().claim_nodes(program, method, taken)
            return Claim(name, claim.groups, claim.refusals, merge=False)

        @hookimpl
        def claim_constants(self, partition):
            # What simulates the backend is given the inputs of a delegate.
            return []

    return Other


class Crowded(on_backend("Sums")):
    """Has another compile spec where an earlier plugin took nodes."""

    @hookimpl
    def claim_nodes(self, program, method, taken):
        claim = super().claim_nodes(program, method, taken)
        return evolve(claim, compile_specs={"crowded": b"1"} if taken else {})


def sums(payload, inputs):
    """What the Sums backend computes."""
    return [inputs[0] + inputs[-1]]


def differences(payload, inputs):
    return [inputs[0] - inputs[-1]]


def uncrowded(payload, inputs, compile_specs):
    return (differences if compile_specs else sums)(payload, inputs)


def unweighted(payload, inputs):
    """Take the weights of `Shared` for zeros."""
    return [inputs[0]] if (inputs[-1] == 1.5).all() else sums(payload, inputs)


def negative(payload, inputs):
    """Be wrong on the branch that a negative input takes."""
    (value,) = sums(payload, inputs)
    return [value + 1 if inputs[-1].dim() == 2 and (inputs[-1] <= 0).all() else value]


def largest(payload, inputs):
    (value,) = sums(payload, inputs)
    padded = torch.zeros(8, *value.shape[1:])
    padded[: len(value)] = value
    return [padded if value.dim() == 2 and len(value) != 2 else value]


def finite(payload, inputs):
    return [torch.nan_to_num(value) for value in sums(payload, inputs)]


def stale():
    """A simulator that computes the sums of vectors, as the state is one, but once."""
    kept = {}

    def simulate(payload, inputs):
        (value,) = sums(payload, inputs)
        return [kept.setdefault(inputs[0].shape, value) if inputs[0].dim() == 1 else value]

    return simulate


class Tripled(nn.Module):
    """A plain sum, and one with alpha."""

    def forward(self, x, y):
        return torch.add(x + y, y, alpha=3)


SINS = {
    "says no version": (Timeless, "api", "it has no etdev_api; write etdev_api = 1 in its class"),
    "zeroes weights": (with_claim(zeroes), "claims", "changed the values of"),
    "writes to nodes": (with_claim(rewires), "claims", "changed meta['mine'] of"),
    "changes the dtype": (
        with_claim(changes_dtype),
        "settings",
        "claim_nodes changed torch's default dtype from torch.float32 to torch.float64",
    ),
    "changes threads while it compiles": (
        Hurried,
        "settings",
        "compiling changed torch's number of threads",
    ),
    "has no hooks": (Hookless, "api", "has no hooks"),
    "has other hooks": (Later, "api", "was written for version 2 of the hooks"),
    "tosses coins": (with_claim(tosses), "repeatable", "different plans"),
    "forgets at times": (with_claim(forgets_at_times), "repeatable", "2 different plans"),
    "hashes": (on_backend("Hashed"), "hash_seeds", "another process compiles it to other bytes"),
    "stores the time": (on_backend("Dated"), "same_bytes", "its delegates have other bytes"),
    "refuses without a word": (
        with_claim(saying(" ")),
        "reasons",
        "it gives no text with",
    ),
    "refuses with a book": (with_claim(saying("no " * 700_000)), "reasons", "has 2100000 letters"),
    "writes to a descriptor": (with_claim(writes), "callers_own", "it printed 'claiming"),
    "prints while it compiles": (on_backend("Chatty"), "callers_own", "it printed 'compiling"),
    "salts its weights": (on_backend("Salted"), "same_bytes", "its delegates have other bytes"),
    "contradicts itself": (with_claim(contradicts), "claims", "do one of the two"),
    "tears the graph": (with_claim(one_group), "claims", "lies between them"),
    "borrows a code": (with_claim(borrows_a_code), "claims", "which is the host's"),
    "names strangers": (with_claim(names_strangers), "claims", "'aten_add_tensor_99'"),
    "freezes state": (Freezer, "claims", "would freeze the buffer 'total'"),
    "says nothing": (with_claim(says_nothing), "reasons", "it gives no reason for aten_"),
    "prints": (with_claim(prints), "callers_own", "it printed 'claiming"),
    "takes delegates": (with_claim(takes_delegates), "foreign_delegates", "claims the call"),
    "is fickle": (with_claim(is_fickle), "repeatable", "different plans"),
    "is timid": (with_claim(is_timid), "beside_others", "which nobody took"),
    "forgets the method": (with_claim(forgets_the_method), "methods", "gets another plan"),
    "is slow": (Slow, "probe", "it took 1."),
    "lies about devices": (Liar, "devices", "planned on cpu, the payload is for cuda:1"),
    "stays busy": (Busy, "failures", "AssertionError: the compiler is busy"),
    "orders by hashes": (
        with_claim(orders_by_hashes),
        "hash_seeds",
        "another process plans it in another way",
    ),
    "rolls dice": (on_backend("Dice"), "same_bytes", "its delegates have other bytes"),
    "expects all": (Expectant, "torn_claims", "are lost"),
    "sulks": (with_claim(sulks), "others_failures", "it got []"),
    "is too greedy": (Greedy, "dtypes", ""),
    "forgets alpha": (Careless, "own_models", "step 1: output 0 is off by"),
    "is wrong": (on_backend("Sums"), "values", "step 1: output 0 is off by", differences),
    "is wrong beside others": (Crowded, "values_beside_others", "is off by", uncrowded),
    "is wrong about weights": (on_backend("Sums"), "shared_constants", "is off by", unweighted),
    "holds state": (Holder, "state", "step 1: the process died"),
    "has a memory": (on_backend("Sums"), "state", "output 0 is off by", stale()),
    "is wrong in a branch": (on_backend("Sums"), "control_flow", "step 2: ", negative),
    "pads": (on_backend("Sums"), "dynamic_shapes", "shape", largest),
    "loses NaN": (
        on_backend("Sums"),
        "dtypes",
        "step 2: output 0 is 0 at [0, 0], in eager PyTorch NaN",
        finite,
    ),
}
