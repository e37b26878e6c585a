"""Sources: where a model is found, and what is said about one that is not there or broken."""

from __future__ import annotations

import pytest
from support.shell import fails, succeeds
from torch.export import ExportedProgram

from etdev.cli.sources import load

FORMS = "write file.pt2, package.module:function or file.py:function"


def test_a_function_is_found_in_a_module_of_the_path():
    assert load("support.models.nets:mlp").keys() == {"forward"}


def test_a_function_is_found_in_a_module_of_the_working_directory(here):
    (here / "net_of_mine.py").write_text("from support.models.nets import mlp\n")
    assert load("net_of_mine:mlp").keys() == {"forward"}


def test_a_function_in_a_file_imports_its_neighbours(here):
    (here / "nets").mkdir()
    (here / "nets" / "sizes_of_mine.py").write_text("WIDTH = 4\n")
    (here / "nets" / "main_of_mine.py").write_text(
        "import torch\nfrom sizes_of_mine import WIDTH\n\n"
        "def net():\n    return torch.nn.ReLU(), torch.ones(WIDTH)\n"
    )
    (tensor,) = load("nets/main_of_mine.py:net")["forward"].example()[0]
    assert tensor.shape == (4,)


def test_a_function_may_return_a_program(broken):
    assert isinstance(load(f"{broken}:program")["forward"].model, ExportedProgram)


def test_a_function_may_return_methods(broken):
    assert list(load(f"{broken}:methods")) == ["one", "two"]


def test_a_pt2_file_is_a_source(pt2, mlp_pte):
    assert isinstance(load(str(pt2))["forward"].model, ExportedProgram)
    assert "max error" in succeeds("run", mlp_pte, "--check", pt2)


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("raises", "calling it raised ValueError: no weights at broken.py:9; fix the function"),
        ("exits", "calling it raised SystemExit: 3 at broken.py:17; fix the function"),
        ("number", "returned int; return (module, example inputs)"),
        ("nothing", "returned NoneType; return (module, example inputs)"),
        ("several", "returned list; return (module, example inputs)"),
        ("bare", "returned a module without example inputs; return (module, example inputs)"),
        (
            "limit",
            "there is no function 'limit'; it has raises, raises_inside_torch, exits, number, "
            "nothing, several, bare, empty",
        ),
        (
            "gone",
            "there is no function 'gone'; it has raises, raises_inside_torch, exits, number, "
            "nothing, several, bare, empty",
        ),
    ],
)
def test_a_function_that_gives_no_model_is_named(broken, name, what):
    for command in ("plan", "lower -o net.pte"):
        assert fails(f"{command} {broken}:{name}") == f"{broken}:{name}: {what}"


def test_a_function_that_raises_inside_torch_is_named_with_its_own_line(broken):
    error = fails(f"plan {broken}:raises_inside_torch")
    assert error.startswith(f"{broken}:raises_inside_torch: calling it raised RuntimeError: ")
    assert error.endswith(" at broken.py:13; fix the function")


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 / 0\n", "raised ZeroDivisionError: division by zero at top_of_mine.py:1"),
        ("import sys\nsys.exit(2)\n", "raised SystemExit: 2 at top_of_mine.py:2"),
        ("def (:\n", "raised SyntaxError: invalid syntax (top_of_mine.py, line 1)"),
    ],
)
def test_a_file_that_can_not_be_imported_is_named(here, text, what):
    (here / "top_of_mine.py").write_text(text)
    assert fails("lower -o net.pte top_of_mine.py:net") == (
        f"top_of_mine.py:net: importing it {what}; fix the file"
    )


@pytest.mark.parametrize(
    ("source", "what"),
    [
        ("gone.py:net", "there is no file 'gone.py'"),
        ("gone_of_mine:net", "no module named 'gone_of_mine'"),
        ("gone_of_mine.inner:net", "no module named 'gone_of_mine'"),
        ("mlp", "does not name a model"),
        ("support.models.nets:", "does not name a model"),
        (":mlp", "does not name a model"),
    ],
)
def test_a_source_that_is_not_there_is_named(source, what):
    assert fails("lower -o net.pte", source) == f"{source}: {what}; {FORMS}"


def test_an_import_that_fails_in_the_users_code_is_named_with_its_line(here):
    (here / "top_of_mine.py").write_text("import torch\nimport below_of_mine\n")
    (here / "below_of_mine.py").write_text("\n\nimport gone_of_mine\n")
    missing = "raised ModuleNotFoundError: No module named 'gone_of_mine' at below_of_mine.py:3"
    for source in ("top_of_mine.py:net", "top_of_mine:net"):
        assert fails("plan", source) == f"{source}: importing it {missing}; fix the file"


SCALED = """\
import torch
from torch.export import Dim


class Scaled(torch.nn.Module):
    def forward(self, x, scale=None, *, shift):
        return (x if scale is None else x * scale) - shift


X, SCALE, SHIFT = torch.arange(6.0).reshape(2, 3), torch.full((1,), 3.0), torch.ones(3)
ROWS = {"x": {0: Dim("rows", min=1, max=8)}, "scale": None, "shift": None}


def keywords(): return Scaled(), {"shift": SHIFT, "x": X, "scale": SCALE}
def both(): return Scaled(), (X,), {"shift": SHIFT, "scale": SCALE}
def four(): return Scaled(), (X,), {"scale": SCALE, "shift": SHIFT}, ROWS
def methods(): return {"forward": (Scaled(), {"x": X, "shift": SHIFT})}
def wrong(): return Scaled(), (X,), 3, None
"""


@pytest.mark.slice("four", "methods")
@pytest.mark.parametrize("name", ["keywords", "both", "four", "methods"])
def test_inputs_may_be_given_by_keyword(here, name):
    """Whatever their order is, each reaches its own input."""
    (here / "scaled.py").write_text(SCALED)
    succeeds(f"lower scaled.py:{name} --plugin cpu -o net.pte --verify")
    assert "max error 0 " in succeeds(f"run net.pte --check scaled.py:{name}")


def test_keyword_inputs_that_are_not_a_dict_are_refused(here):
    (here / "scaled.py").write_text(SCALED)
    assert fails("plan scaled.py:wrong") == "forward: keyword inputs are int; give a dict"


def test_what_is_no_function_says_what_function_to_write(here):
    (here / "made_of_mine.py").write_text(
        "import torch\nNet = torch.nn.ReLU\nnet = Net()\n"
        "program = torch.export.export(net, (torch.ones(2),))\n"
    )
    for name, what in {
        "Net": "Net is a class, not a function; write def model(): return Net().eval(), (example",
        "net": "net is a module, not a function; write def model(): return net, (example inputs)",
        "program": "program is an ExportedProgram, not a function; write def model(): return prog",
    }.items():
        assert what in fails("plan", f"made_of_mine.py:{name}")
