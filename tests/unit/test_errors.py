"""Errors: their text, their parts, and that they survive the way to another process."""

import pickle

import pytest

from etdev import errors
from etdev.errors import EtdevError, PluginError, first_line


def tree(kind=EtdevError):
    return [kind, *(below for child in kind.__subclasses__() for below in tree(child))]


ERRORS = [kind for kind in tree() if kind.__module__ == errors.__name__]


@pytest.mark.parametrize(
    ("parts", "text"),
    [
        (("trt", "not installed", "pip install etdev-trt"),
         "trt: not installed; pip install etdev-trt"),
        (("trt", "not installed"), "trt: not installed"),
        (("", "not installed"), "not installed"),
        (("", "not installed", "install it"), "not installed; install it"),
    ],
)  # fmt: skip
def test_a_text_reads_who_what_and_cure(parts, text):
    assert str(EtdevError(*parts)) == text


def test_the_parts_of_an_error_are_attributes():
    error = PluginError("trt", "not installed", "pip install etdev-trt")
    assert (error.who, error.what, error.cure) == ("trt", "not installed", "pip install etdev-trt")


@pytest.mark.parametrize("kind", ERRORS)
def test_an_error_is_the_same_after_pickling(kind):
    error = kind("trt", "not installed", "pip install etdev-trt")
    back = pickle.loads(pickle.dumps(error))
    assert (type(back), back.args, str(back)) == (kind, error.args, str(error))


@pytest.mark.parametrize(
    ("error", "line"),
    [
        (KeyError("aten.add"), "KeyError: 'aten.add'"),
        (ValueError("one\ntwo"), "ValueError: one"),
        (ValueError("\n  one  \ntwo"), "ValueError: one"),
        (RuntimeError("missing:\n  - a\n\n  - b\nAdd."), "RuntimeError: missing: - a - b Add."),
        (RuntimeError("all:" + "\n12345" * 99), "RuntimeError: all:" + " 12345" * 66 + " ..."),
        (ValueError(), "ValueError"),
        (ValueError("  "), "ValueError"),
        (TypeError("'groups' must be a Group", object()), "TypeError: 'groups' must be a Group"),
        (EtdevError("trt", "is gone", "come back"), "EtdevError: trt: is gone; come back"),
        (OSError(2, "No such file"), "FileNotFoundError: [Errno 2] No such file"),
    ],
)
def test_an_error_fits_in_one_line(error, line):
    assert first_line(error) == line


def test_of_a_pass_that_failed_the_reason_is_said():
    error = Exception("An error occurred when running the 'APass' pass after others")
    error.__cause__ = AssertionError("Expected w to be NCHW")
    assert first_line(error).endswith("after others (AssertionError: Expected w to be NCHW)")


class Mute(Exception):
    """An error whose text can't be had."""

    def __str__(self) -> str:
        raise ValueError("no text")


def test_an_error_whose_text_fails_is_named_by_its_class():
    assert first_line(Mute()) == "Mute"
