"""A process that judges models, one order at a time.

It is asked with a part, a model and an order, and answers with the verdict; without an order, with
what makes the model no subject, or None.
"""

import os
import sys
import warnings
from functools import cache
from pathlib import Path

from processes import answering

# The tests' folder instead of this one.
sys.path[0] = str(Path(__file__).parents[1])
os.environ["ETDEV_CACHE"] = "off"


def answer(question):
    from survey.judge import Verdict

    part, model, order = question
    warnings.simplefilter("ignore")
    try:
        return (
            _unfit(part, model) if order is None else _judge().verdict(_subject(part, model), order)
        )
    except Exception as error:
        return Verdict("no reference", f"{type(error).__name__}: {error}")


def _unfit(part, model):
    from survey import parts
    from survey.judge import Verdict, is_random

    if parts.is_unordered(part, model):
        return Verdict("ties")
    subject = _subject(part, model)
    if subject is None:
        return Verdict("not exported")
    return Verdict("random") if is_random(subject) else None


@cache
def _judge():
    from survey.judge import Judge

    return Judge()


_last = {}


def _subject(part, model):
    from survey import parts

    if (part, model) not in _last:
        _last.clear()
        _last[part, model] = parts.subject(part, model)
    return _last[part, model]


if __name__ == "__main__":
    answering(answer)
