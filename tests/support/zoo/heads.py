"""Heads: what makes boxes, tokens and scores of the numbers that a network ends with."""

import math

import torch
from torch import nn
from torch.nn import functional as layers

from support.zoo import Zoo, random

ZOO = Zoo()
TOKENS = torch.tensor([1, 5, 3, 2])


def model(*calls, **parts):
    # Positions among what is NaN have no order, and XNNPACK's exp loses NaN.
    return ZOO.model(*calls, edges=False, **parts)


def calls(*shapes):
    return [
        tuple(random(*shape, seed=seed + 9 * step) for seed, shape in enumerate(shapes))
        for step in range(3)
    ]


@model(
    (*(random(5, 16, seed=s).softmax(-1) for s in (0, 1)), TOKENS, random(4).sigmoid()),
    (*(random(5, 16, seed=s).softmax(-1) for s in (2, 3)), TOKENS + 4, random(4, seed=1).sigmoid()),
)
def drafted_tokens_accepted(net, p, q, draft, chance):
    place = torch.arange(4)
    accepted = chance < (p[place, draft] / q[place, draft]).clamp(max=1.0)
    count = torch.cumprod(accepted.long(), 0).sum()
    rest = (p - q).clamp(min=0)
    rest = rest / rest.sum(-1, keepdim=True)
    row = torch.where(count == 4, p[4], rest.index_select(0, count.reshape(1)).squeeze(0))
    return count, row.argmax(-1), accepted


@model(
    (random(4, 20), torch.zeros(4), torch.zeros(4, 3, dtype=torch.long), TOKENS == 5),
    (random(4, 20, seed=3), random(4), torch.ones(4, 3, dtype=torch.long), TOKENS > 2),
)
def beams_of_which_some_are_done(net, logits, score, history, done):
    chances = logits.log_softmax(-1)
    ended = torch.full_like(chances, -math.inf)
    ended[:, 2] = 0.0
    chances = torch.where(done.unsqueeze(-1), ended, chances)
    best, index = (score.unsqueeze(-1) + chances).flatten().topk(3)
    beam = torch.div(index, 20, rounding_mode="floor")
    token = index % 20
    return best, torch.cat([history[beam], token.unsqueeze(-1)], 1), done[beam] | (token == 2)


@model(*(random(10, 6, seed=step) for step in range(3)))
def letters_without_blanks_and_repeats(net, x):
    best = x.argmax(-1)
    kept = (best != layers.pad(best[:-1], (1, 0), value=-1)) & (best != 0)
    places = torch.where(kept, kept.cumsum(0) - 1, 10)
    return torch.full((11,), -1).scatter(0, places, best)[:10], kept.sum()


@model(*calls((8, 2), (8, 2), (8,)))
def boxes_that_overlap_suppressed(net, corner, size, score):
    order = score.argsort(descending=True)
    low, size = corner[order], size[order].abs() + 0.5
    high = low + size
    shared = torch.minimum(high[:, None], high) - torch.maximum(low[:, None], low)
    shared, area = shared.clamp(min=0).prod(-1), size.prod(-1)
    overlaps = shared / (area[:, None] + area - shared) > 0.3
    kept = torch.ones(8, dtype=torch.bool)
    for box in range(8):
        kept = kept & ~(overlaps[box] & (torch.arange(8) > box) & kept[box])
    return kept, torch.where(kept, score[order], 0.0)


@model(*calls((1, 8, 6, 6)), scores=nn.Conv2d(8, 6, 3, padding=1), moves=nn.Conv2d(8, 12, 1))
def boxes_around_anchors(net, x):
    scores = net.scores(x).permute(0, 2, 3, 1).reshape(1, -1, 2).sigmoid()
    moves = net.moves(x).permute(0, 2, 3, 1).reshape(1, -1, 4)
    y, x = torch.meshgrid(torch.arange(6) + 0.5, torch.arange(6) + 0.5, indexing="ij")
    middle = torch.stack([x, y], -1)[:, :, None].expand(6, 6, 3, 2).reshape(1, -1, 2)
    shape = torch.tensor([[1.0, 1.0], [2.0, 1.0], [1.0, 2.0]]).repeat(36, 1)
    middle = middle + moves[..., :2] * shape
    half = moves[..., 2:].clamp(max=4.0).exp() * shape / 2
    return scores.amax(-1), torch.cat([middle - half, middle + half], -1)


@model(*calls((1, 67, 4, 4)))
def distances_as_distributions(net, x):
    sides, scores = x.flatten(2).split([64, 3], 1)
    sides = sides.view(1, 4, 16, 16).transpose(1, 2).softmax(1)
    low, high = (sides * torch.arange(16.0).view(1, 16, 1, 1)).sum(1).chunk(2, 1)
    at = torch.stack(torch.meshgrid(torch.arange(4.0), torch.arange(4.0), indexing="xy"))
    middle = at.flatten(1) + (high - low) / 2
    return torch.cat([middle, low + high], 1) * 8, scores.sigmoid()


@model(*calls((1, 3, 8, 8)))
def peaks_of_a_heat_map(net, x):
    heat = x.sigmoid()
    score, index = torch.where(layers.max_pool2d(heat, 3, 1, 1) == heat, heat, 0).flatten(1).topk(6)
    return score, index // 64, index % 64 // 8, index % 8


@model(*((random(30, seed=step) * 2, TOKENS + 3 * step, random(1).sigmoid()) for step in range(3)))
def likeliest_tokens_without_repeats(net, logits, history, chance):
    seen = logits.gather(0, history)
    logits = logits.scatter(0, history, torch.where(seen < 0, seen * 1.3, seen / 1.3))
    p, token = (logits / 0.8).softmax(-1).sort(descending=True)
    p = torch.where(p.cumsum(-1) - p > 0.9, 0.0, p)
    place = torch.searchsorted((p / p.sum()).cumsum(-1), chance).clamp(max=29)
    return token.gather(0, place), (p > 0).sum()


@model(
    *(
        (random(70, seed=s), torch.tensor([5**10, -7 - s, 3**8], dtype=torch.int32))
        for s in range(3)
    )
)
def tokens_that_a_grammar_allows(net, logits, bits):
    place = torch.arange(70)
    allowed = (bits[place // 32] >> (place % 32).to(torch.int32)) & 1
    logits = logits.masked_fill(allowed == 0, -math.inf)
    return logits.argmax(), logits.softmax(-1), allowed.sum()


@model(*calls((6, 4)), moves=random(4, 4, seed=7))
def likeliest_path(net, x):
    score, steps = x[0], []
    for step in range(1, 6):
        score, before = (score.unsqueeze(-1) + net.moves).max(0)
        score = score + x[step]
        steps.append(before)
    path = [score.argmax()]
    for before in reversed(steps):
        path.append(before[path[-1]])
    return score.max(), torch.stack(path[::-1])


@model(*calls((12, 8)), gate=nn.Linear(8, 4), experts=random(4, 8, 8))
def experts_of_limited_capacity(net, x):
    chances = net.gate(x).softmax(-1)
    chosen = layers.one_hot(torch.arange(12) % 4, 4)
    place = (chosen.cumsum(0) - 1) * chosen
    kept = (place < 2) & chosen.bool()
    sent = layers.one_hot(place.clamp(0, 1), 2) * kept.unsqueeze(-1)
    rows = torch.einsum("tec,td->ecd", sent.to(x.dtype), x)
    answers = torch.einsum("ecd,edf->ecf", rows, net.experts)
    return torch.einsum("tec,ecd->td", sent * chances.unsqueeze(-1), answers)


@model(*calls((4, 5, 6)), i=torch.tensor([3, -1, 0]), j=torch.tensor([0, 2, -2]))
def rows_counted_from_both_ends(net, x):
    i, j = net.i * 1, net.j * 1
    return x[i, j], x[i, :, j], x[:, :, i[:, None] + torch.arange(2)], x[-1], x[:, -1, i]


@model(
    *((random(1, 2, 6, 6, seed=step), random(1, 4, 4, 2, seed=step)) for step in range(3)),
)
def samples_beside_an_image(net, x, grid):
    far = torch.where(grid > 1, torch.nan, grid)
    return [
        layers.grid_sample(x, far, padding_mode=padding, align_corners=False)
        for padding in ("zeros", "border", "reflection")
    ]
