"""A notebook, executed: plans, lowerings and profiles as a person sees them in Jupyter."""

from __future__ import annotations

import os
import sys

import pytest

nbformat = pytest.importorskip("nbformat", reason="needs nbclient")
nbclient = pytest.importorskip("nbclient", reason="pip install nbclient ipykernel")
pytest.importorskip("ipykernel", reason="pip install ipykernel")

# It takes a process of Jupyter's; unit/schema/test_display.py reads the same tables in this one.
pytestmark = pytest.mark.suite

CELLS = (
    "from support.models import nets; from etdev import Lowerer, diff",
    "lowered = Lowerer(['cpu'], cache=False).lower(*nets.mlp()); lowered",
    "lowered.plan",
    "lowered.plan['forward']",
    "diff(lowered.plan, Lowerer([]).plan(*nets.mlp()))",
    "path = lowered.save('net.pte', with_ledger=True)\n"
    "from etdev.runtime.profile import profile\n"
    "from etdev.errors import RunError\n"
    "try:\n"
    "    measured = profile(path, nets.mlp()[1], repeat=2, plan=lowered.plan)\n"
    "except RunError:\n"
    "    measured = None  # The runtime of ExecuTorch's wheel of 1.4.1 writes no trace.\n"
    "measured",
)


@pytest.fixture(scope="module")
def outputs(tmp_path_factory):
    """What each cell shows, by kind."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in CELLS])
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    folder = tmp_path_factory.mktemp("notebook")
    client = nbclient.NotebookClient(
        notebook, timeout=300, resources={"metadata": {"path": str(folder)}}
    )
    client.execute(env=environment)
    kinds = ("execute_result",)
    return [
        next((o["data"] for o in cell["outputs"] if o["output_type"] in kinds), {})
        for cell in notebook.cells
    ]


def test_each_value_is_one_line_as_text(outputs):
    plan = "forward: 2 delegates, cpu 3, portable 1"
    assert [output.get("text/plain") for output in outputs[1:4]] == [
        f"<Lowered {plan}>", f"<Plan {plan}>", f"<MethodPlan {plan}>",
    ]  # fmt: skip


def test_each_value_is_tables_in_html(outputs):
    for output in outputs[1:4]:
        html = output["text/html"]
        assert "XnnpackBackend" in html
        assert "XNNPACK has no native_layer_norm.default" in html
    assert "aten_relu_default" in outputs[4]["text/html"]


def test_a_profile_is_a_line_and_a_table(outputs):
    if not outputs[5]:
        pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
    assert outputs[5]["text/plain"].startswith("<Profile forward: ")
    assert "aten::native_layer_norm.out" in outputs[5]["text/html"]
