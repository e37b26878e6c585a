"""Results: what backends return from preprocess, and what is said of anything else."""

import pytest
import torch
from executorch.exir.backend.backend_details import BackendDetails, PreprocessResult
from support.models.small import PAIR, AddMul
from support.toys.accelerator import Accelerator

from etdev import Lowerer
from etdev.delegate.results import checked, checked_together
from etdev.errors import CompileError
from etdev.schema.partition import Partition

ONE, TWO = (Partition(f"a_{n}", "forward", "a", "B", ("mul",)) for n in range(2))
STEP = Partition("a_0", "step", "a", "B", ("mul",))
RESULT = PreprocessResult(processed_bytes=b"fake")
FROM_PREPROCESS = "return PreprocessResult(processed_bytes=...) from preprocess"


@pytest.mark.parametrize(
    ("result", "message"),
    [
        (None, f"returned None; {FROM_PREPROCESS}"),
        ("fake", f"returned 'fake'; {FROM_PREPROCESS}"),
        (b"fake", f"returned b'fake'; {FROM_PREPROCESS}"),
        (b"x" * 99, f"returned a bytes: b'{'x' * 48}...; {FROM_PREPROCESS}"),
        (
            PreprocessResult(processed_bytes="fake"),
            "returned a PreprocessResult with processed_bytes 'fake'; give bytes",
        ),
        (
            PreprocessResult(processed_bytes=None),
            "returned a PreprocessResult with processed_bytes None; give bytes",
        ),
        (
            PreprocessResult(b"fake", data_store_output={}),
            "returned the data_store_output {}; "
            "give NamedDataStore.get_named_data_store_output(), or None",
        ),
        (
            PreprocessResult(b"fake", debug_handle_map=[1]),
            "returned the debug_handle_map [1]; give a dict, or None",
        ),
    ],
)
def test_another_result_is_refused_with_plugin_and_partition(result, message):
    with pytest.raises(CompileError) as caught:
        checked(ONE, result)
    assert str(caught.value) == f"a: B compiled forward/a_0 and {message}"


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_field_of_a_later_executorch_is_refused_and_not_dropped(jobs, tmp_path):
    with pytest.raises(CompileError, match=r"returned scratch_specs, which this etdev can't write"):
        Lowerer([Accelerator(backend="Scratch")], cache=tmp_path, jobs=jobs).lower(AddMul(), PAIR)
    assert not list(tmp_path.rglob("*.entry"))


class Scratch(BackendDetails):
    @staticmethod
    def preprocess(program, specs):
        result = PreprocessResult(b"fake")
        result.scratch_specs = [(16, "int8")]
        return result


@pytest.mark.parametrize("kind", [bytearray, memoryview])
def test_a_payload_of_another_kind_of_bytes_is_written_like_bytes(kind, tmp_path):
    assert checked(ONE, PreprocessResult(kind(b"fake"))) == RESULT
    name = f"Gives{kind.__name__.capitalize()}"

    def preprocess(program, specs):
        return PreprocessResult(kind(b"fake"))

    backend = type(name, (BackendDetails,), {"preprocess": staticmethod(preprocess)})
    lowered = Lowerer([Accelerator(backend=backend.__name__)], cache=False).lower(AddMul(), PAIR)
    assert b"fake" in lowered.save(tmp_path / "net.pte").read_bytes()


def test_a_right_result_is_taken():
    assert checked(ONE, RESULT) is RESULT
    assert checked_together([ONE, STEP, TWO], {"forward": [RESULT] * 2, "step": (RESULT,)}) == {
        "forward": [RESULT] * 2,
        "step": [RESULT],
    }


@pytest.mark.parametrize(
    ("results", "message"),
    [
        ([RESULT], "returned a list: [PreprocessResult(processed_bytes=b'fake', debug_h... from "
         "preprocess_multimethod; return a dict of method to a list of PreprocessResult"),
        ({"forward": [RESULT]}, "returned 1 results for the 2 partitions of method 'forward' from "
         "preprocess_multimethod; return one for each, in the order in which they are given"),
        ({"forward": None}, "returned 0 results for the 2 partitions of method 'forward' from "
         "preprocess_multimethod; return one for each, in the order in which they are given"),
        ({"forward": [RESULT, None]}, f"returned None; {FROM_PREPROCESS}"),
    ],
)  # fmt: skip
def test_results_of_several_partitions_are_complete(results, message):
    with pytest.raises(CompileError) as caught:
        checked_together([ONE, TWO], results)
    assert str(caught.value).startswith("a: B compiled forward/a_")
    assert str(caught.value).endswith(f" and {message}")


class ReturnsText(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        return "fake"


class Exits(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs):
        raise SystemExit("usage")


class ReturnsNothingTogether(BackendDetails):
    @staticmethod
    def preprocess(edge_program, compile_specs): ...

    @classmethod
    def preprocess_multimethod(cls, edge_programs, compile_specs):
        return {}


@pytest.mark.parametrize("backend", [ReturnsText, Exits, ReturnsNothingTogether])
def test_a_backend_is_named_in_a_lowering(backend):
    lowerer = Lowerer([Accelerator(backend=backend.__name__)])
    with pytest.raises(CompileError, match=f"^accelerator: {backend.__name__} .*accelerator_0"):
        lowerer.lower(AddMul(), PAIR)
    assert torch.get_default_dtype() == torch.float32
