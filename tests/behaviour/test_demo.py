"""`make demo`, on a small encoder in place of MiniLM and its weights."""

from types import SimpleNamespace

import torch
from support import demo
from support.models import minilm
from torch import nn


class Words(nn.Module):
    """What `SentenceEncoder` calls: tokens to a vector each."""

    def __init__(self):
        super().__init__()
        self.table, self.layer = nn.Embedding(64, 16), nn.Linear(16, 16)

    def forward(self, tokens, attention_mask):
        return SimpleNamespace(last_hidden_state=self.layer(self.table(tokens)))


def tokenise(*sentences):
    lines = [[ord(letter) % 64 for letter in sentence[:16].ljust(16)] for sentence in sentences]
    return torch.tensor(lines), torch.ones(len(lines), 16, dtype=torch.int64)


def test_the_demo_lowers_runs_and_compares(monkeypatch, tmp_path, capfd):
    encoder = minilm.SentenceEncoder(Words()).eval()
    monkeypatch.setattr(minilm, "model", lambda: (encoder, tokenise("a first", "and a second")))
    monkeypatch.setattr(minilm, "tokenise", tokenise)
    path = tmp_path / "minilm.pte"
    demo.main(path)
    assert path.is_file()
    told = capfd.readouterr().out
    assert f"wrote {path}, max error against eager" in " ".join(told.split())
    assert all(first in told for first, _ in demo.PAIRS[:1])
