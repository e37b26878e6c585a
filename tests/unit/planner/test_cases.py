"""Golden plans: for the models, plugins and rules of cases/*.txt, the plans that stand there.

After a deliberate change write them anew and read the diff:

    pytest tests/unit/planner/test_cases.py --rewrite
"""

from pathlib import Path

import pytest
from support.golden import cases

from etdev.planner import constants

FILES = sorted((Path(__file__).parent / "cases").glob("*.txt"))
CASES = [
    pytest.param(file, index, id=f"{file.stem}: {case.title}")
    for file in FILES
    for index, case in enumerate(cases.read(file)[1])
]


@pytest.fixture(scope="module", autouse=True)
def _of_every_torch():
    """In the order of inputs that torch 2.13 has; tests of bytes hold that of later ones."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "SORTS_INPUTS", False)
        yield


@pytest.fixture(scope="module", autouse=True)
def _rewritten(request, _of_every_torch):
    if request.config.getoption("--rewrite"):
        for file in FILES:
            cases.rewrite(file)


@pytest.mark.parametrize(("file", "index"), CASES)
def test_a_plan_is_as_its_case_says(file, index):
    case = cases.read(file)[1][index]
    result = case.result()
    assert result.keys() == case.expected.keys(), result
    for section, text in case.expected.items():
        assert result[section] == text
