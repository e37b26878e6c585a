"""A child process returns values, or says why a function did not finish, and can be used again."""

import os
import tempfile
import time

import pytest

from etdev.runtime.child import CHILD, COMMAND, Child


@pytest.fixture(scope="module")
def child():
    # It imports that in place of ExecuTorch, which takes seconds and which CHILD has below.
    child = Child("the function", {"ETDEV_TEST_CHILD": "1"}, (*COMMAND, "json"))
    yield child
    child.close()


def test_it_returns_what_a_function_yields(child):
    outcome = child.run(iter, [1, "two", None])
    assert (outcome.values, outcome.failure) == ([1, "two", None], None)


def test_it_has_the_variables_that_it_was_given(child):
    assert child.run(os.getenv, "ETDEV_TEST_CHILD").values == ["1"]


def test_it_imports_nothing_from_the_folder_of_temporary_files(child):
    (paths,) = child.run(eval, "[__import__('sys').path]").values
    assert tempfile.gettempdir() not in paths


def test_a_fork_has_a_process_of_its_own():
    CHILD.start()
    before, (reading, writing) = CHILD._process, os.pipe()
    forked = os.fork()
    if not forked:
        try:
            os.write(writing, b"%d" % CHILD.run(iter, [1]).values[0])
        finally:
            CHILD.close()
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as answer:
        assert answer.read() == b"1"
    os.waitpid(forked, 0)
    assert CHILD.run(iter, [2]).values == [2]
    assert CHILD._process is before


def test_an_error_is_a_failure_and_the_process_stays(child):
    failure = child.run(int, "x").failure
    assert failure.startswith("the function failed with ValueError: invalid literal")
    assert child.run(iter, [3]).values == [3]


@pytest.mark.parametrize(
    ("function", "args", "failure"),
    [
        (os._exit, (3,), "the process ended with exit code 3"),
        (os.abort, (), "the process died of SIGABRT"),
        (time.sleep, (60,), "the process took longer than 0.5 s"),
    ],
)
def test_a_process_that_ends_is_started_again(child, function, args, failure):
    assert child.run(iter, [1]).values == [1]
    limit_s = 0.5 if function is time.sleep else 60
    assert child.run(function, *args, limit_s=limit_s).failure.startswith(failure)
    assert child.run(iter, [2]).values == [2]
