"""Model Explorer opens our files with ExecuTorch's extension, and finds our node data in them."""

from __future__ import annotations

import json

import pytest
from support.models import nets
from support.shell import invoke

from etdev import Lowerer

REASON = "pip install executorch-extension-model-explorer ai-edge-model-explorer"
pytest.importorskip("model_explorer", reason=REASON)
etrecord = pytest.importorskip("etrecord_adapter_model_explorer.main", reason=REASON)
pte = pytest.importorskip("pte_adapter_model_explorer.main", reason=REASON)
# What each graph has beside the nodes of the program.
ENDS = {"GraphInputs", "GraphOutputs"}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A .pte, its ETRecord, and its node data with measured times."""
    folder = tmp_path_factory.mktemp("explorer")
    lowered = Lowerer(["cpu"]).lower(*nets.bert(1))
    lowered.save(folder / "net.pte", with_ledger=True)
    lowered.to_executorch().get_etrecord().save(folder / "net.etrecord")
    view = f"node-data={folder / 'data'}"
    done = invoke("run --profile --repeat 2 --view", view, folder / "net.pte")
    if "the runtime writes no trace" in done.stderr:
        pytest.skip("this ExecuTorch's runtime writes no trace, as the wheel of 1.4.1")
    assert done.exit_code == 0, done.stderr
    return folder


def graph(adapter, file):
    """The nodes of the program's graph."""
    (*collections,) = adapter().convert(str(file), {})["graphCollections"]
    graphs = [g for c in collections for g in (c["graphs"] if isinstance(c, dict) else c.graphs)]
    return {node.id for g in graphs if g.id == "forward" for node in g.nodes} - ENDS


@pytest.mark.parametrize("name", ["owner", "device", "reason", "time"])
def test_every_node_has_its_data(folder, name):
    from model_explorer.node_data_builder import GraphNodeData

    written = json.loads((folder / "data" / f"{name}.json").read_text())
    # The fields are those that Model Explorer knows.
    GraphNodeData(**written["forward"])
    results = written["forward"]["results"]
    assert graph(etrecord.ETRecordAdapter, folder / "net.etrecord") <= results.keys()
    assert graph(pte.PTEAdapter, folder / "net.pte") <= results.keys()
