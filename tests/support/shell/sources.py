"""Sources of models, sound and broken ones."""

# A SOURCE for each mistake; the line of the mistake is part of the message.
BROKEN = """\
import sys

import torch

from support.models import nets


def raises():
    raise ValueError("no weights")


def raises_inside_torch():
    return torch.nn.Linear(2, -3)


def exits():
    sys.exit(3)


def number():
    return 42


def nothing():
    return None


def several():
    return [nets.mlp()]


def bare():
    return nets.mlp()[0]


def empty():
    return {}


def badly_shaped():
    return torch.nn.Linear(2, 2), (torch.ones(1, 3),)


def program():
    return torch.export.export(*nets.mlp())


def methods():
    return {"one": nets.mlp(), "two": nets.mlp()}


def two():
    return Two(), (torch.ones(3),)


def second_is_nan():
    return Two(float("nan")), (torch.ones(3),)


class Two(torch.nn.Module):
    def __init__(self, factor=2.0):
        super().__init__()
        self.factor = factor

    def forward(self, x):
        return x + 1, x * self.factor


limit = 3
"""
