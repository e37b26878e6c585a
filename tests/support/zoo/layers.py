"""Layers: arguments and combinations of layers that a compiler may merge or take for others."""

import torch
from torch import nn
from torch.nn import functional as layers

from support.zoo import Zoo, random

ZOO = Zoo()
IMAGES = [random(2, 4, 9, 9, seed=seed) for seed in range(3)]
ROWS = [random(3, 16, seed=seed) for seed in range(3)]


def images(**parts):
    return ZOO.model(*IMAGES, edges=False, **parts)


def rows(**parts):
    return ZOO.model(*ROWS, edges=False, **parts)


@images()
def clamped_in_six_ways(net, x):
    return (
        layers.hardtanh(x, 0.0, 1.0),
        layers.hardtanh(x),
        layers.relu6(x * 9),
        layers.hardtanh(x, -2.0, -0.5),
        x.clamp(max=0.3),
        x.clamp(-0.1, 0.1),
    )


@images(layer=nn.Conv2d(4, 6, 3), bounded=nn.Hardtanh(0, 1))
def bounded_behind_a_convolution(net, x):
    return net.bounded(net.layer(x))


@rows(layer=nn.Linear(16, 8))
def two_activations_in_a_row(net, x):
    y = net.layer(x)
    return layers.hardtanh(layers.relu(y), -0.5, 0.7), layers.relu(layers.hardtanh(y, -1, 2))


@rows(layer=nn.Linear(16, 8))
def layer_read_with_and_without_its_activation(net, x):
    y = net.layer(x)
    return y, y.relu(), y.relu() - y, y.sigmoid() * y


@images(layer=nn.Conv2d(4, 4, 3, padding=1))
def sum_with_an_activation_read_twice(net, x):
    y = layers.relu(net.layer(x) + x)
    return layers.relu6(y + x), y


@images(
    one=nn.Conv2d(4, 8, 3, padding="same", dilation=2, groups=2),
    two=nn.Conv2d(8, 8, (1, 3), stride=(2, 1), padding_mode="circular", padding=(0, 1)),
    three=nn.Conv2d(8, 4, 3, padding=2, padding_mode="reflect", bias=False),
)
def paddings_of_convolutions(net, x):
    return net.three(net.two(net.one(x)))


@images(
    one=nn.ConvTranspose2d(4, 6, 3, stride=2, output_padding=1),
    two=nn.ConvTranspose2d(6, 6, (2, 3), groups=3, padding=(0, 1), dilation=2),
    three=nn.ConvTranspose2d(6, 2, 1, bias=False),
)
def transposed_convolutions(net, x):
    y = net.two(net.one(x).relu())
    return net.three(y), y


@images(
    norm=nn.BatchNorm2d(4, affine=False),
    layer=nn.Conv2d(4, 4, 1),
    again=nn.BatchNorm2d(4, momentum=None),
)
def norms_before_and_behind_a_convolution(net, x):
    return net.again(net.layer(net.norm(x))), net.norm(x) + net.again(x)


@images(
    group=nn.GroupNorm(2, 4),
    instance=nn.InstanceNorm2d(4, affine=True),
    local=nn.LocalResponseNorm(3),
    layer=nn.LayerNorm((9, 9), elementwise_affine=False),
)
def norms_of_images(net, x):
    return net.group(x), net.instance(x), net.local(x), net.layer(x)


@rows(group=nn.GroupNorm(4, 16), batch=nn.BatchNorm1d(16), rms=nn.RMSNorm(16))
def norms_of_rows(net, x):
    return net.group(x), net.batch(x), net.rms(x), layers.normalize(x, p=1, dim=0)


@images()
def average_pools(net, x):
    return (
        layers.avg_pool2d(x, 3, 2, 1, ceil_mode=True),
        layers.avg_pool2d(x, 2, 2, 1, count_include_pad=False),
        layers.avg_pool2d(x, 3, divisor_override=5),
        layers.adaptive_avg_pool2d(x, (4, 2)),
        layers.lp_pool2d(x.abs(), 2, 3),
    )


@images()
def largest_of_windows(net, x):
    pooled, index = layers.max_pool2d(x, 3, 2, 1, return_indices=True)
    return (
        pooled,
        index,
        layers.max_pool2d(x, 2, ceil_mode=True),
        layers.max_pool2d(x, 3, 1, 1, dilation=1),
        layers.max_pool2d(x, 2, dilation=3),
        layers.adaptive_max_pool2d(x, (3, 4)),
        -layers.max_pool2d(-x, 3, padding=1),
    )


@images()
def pooled_and_put_back(net, x):
    pooled, index = layers.max_pool2d(x, 2, 2, return_indices=True)
    return layers.max_unpool2d(pooled, index, 2, 2, output_size=(9, 9))


@images()
def resized_images(net, x):
    return (
        layers.interpolate(x, scale_factor=0.7, mode="bilinear"),
        layers.interpolate(x, size=(5, 13), mode="bilinear", align_corners=True),
        layers.interpolate(x, scale_factor=2.0, mode="nearest"),
        layers.interpolate(x, size=(4, 20), mode="nearest-exact"),
        layers.interpolate(x, size=(6, 3), mode="area"),
        layers.interpolate(x, scale_factor=(1.5, 2.0), mode="bicubic", align_corners=True),
    )


@images()
def padded_images(net, x):
    return (
        layers.pad(x, (1, 2, 0, 3), value=-1.5),
        layers.pad(x, (2, 2, 1, 1), mode="reflect"),
        layers.pad(x, (1, 0, 0, 2), mode="replicate"),
        layers.pad(x, (3, 1, 2, 2), mode="circular"),
        layers.pad(x, (-1, 2, 1, -2)),
        layers.pad(x, (0, 0, 0, 0, 1, 1)),
    )


@images()
def patches(net, x):
    columns = layers.unfold(x, 3, padding=1, stride=2)
    return columns, layers.fold(columns, (9, 9), 3, padding=1, stride=2)


@ZOO.model(*[random(2, 8, 4, 6, seed=seed) for seed in range(3)], edges=False)
def shuffled_pixels_and_channels(net, x):
    return layers.pixel_shuffle(x, 2), layers.pixel_unshuffle(x, 2), layers.channel_shuffle(x, 4)


@ZOO.model(
    *[random(2, 3, 12, seed=seed) for seed in range(3)],
    edges=False,
    one=nn.Conv1d(3, 6, 3, padding=1, groups=3),
    back=nn.ConvTranspose1d(6, 3, 4, stride=2, padding=1),
)
def signals(net, x):
    y = net.one(x).relu()
    return net.back(y), layers.avg_pool1d(y, 3, 2), layers.max_pool1d(y, 2), layers.glu(y, 1)


@ZOO.model(
    *[random(1, 2, 4, 5, 6, seed=seed) for seed in range(3)],
    edges=False,
    one=nn.Conv3d(2, 4, (1, 3, 3), padding=(0, 1, 1)),
    two=nn.Conv3d(4, 4, (3, 1, 1), groups=2),
    back=nn.ConvTranspose3d(4, 2, 2),
)
def volumes(net, x):
    y = net.two(net.one(x).relu())
    return net.back(y), layers.avg_pool3d(y, 2), layers.max_pool3d(y, 2)


@rows(slopes=nn.PReLU(16, 0.3), slope=nn.PReLU())
def slopes_below_zero(net, x):
    return (
        net.slopes(x),
        net.slope(x),
        layers.leaky_relu(x, -0.2),
        layers.elu(x, 1.7),
        layers.celu(x, 0.4),
        layers.selu(x),
        layers.rrelu(x),
    )


@rows()
def soft_activations(net, x):
    return (
        layers.softplus(x, beta=3, threshold=2),
        layers.softshrink(x, 0.2),
        layers.hardshrink(x, 0.9),
        layers.tanhshrink(x),
        layers.threshold(x, 0.1, -7.0),
        layers.logsigmoid(x * 30),
        layers.mish(x),
        layers.hardswish(x * 4),
        layers.hardsigmoid(x * 4),
        layers.gelu(x),
        layers.gelu(x, approximate="tanh"),
    )


@rows()
def shares(net, x):
    return (
        x.softmax(0),
        x.log_softmax(-1),
        layers.softmin(x, 1),
        (x * 300).softmax(-1),
        x.reshape(3, 2, 8).softmax(1),
    )


@rows(both=nn.Bilinear(16, 16, 3), one=nn.Linear(16, 4, bias=False), none=nn.Identity())
def bilinear_layer(net, x):
    return net.both(x, x.flip(1)), net.none(net.one(x)).sum(0)


@ZOO.model(
    *[torch.tensor([[1, 2, 0], [5, 5, 3]]) + seed for seed in range(3)],
    edges=False,
    table=nn.Embedding(9, 4, padding_idx=0),
    bag=nn.EmbeddingBag(9, 4, mode="mean"),
    most=nn.EmbeddingBag(9, 4, mode="max"),
    total=nn.EmbeddingBag(9, 4, mode="sum", padding_idx=2),
)
def embedding_bags(net, index):
    return net.table(index), net.bag(index), net.most(index), net.total(index)


@ZOO.model(
    *[(random(4, 5, seed=seed), torch.tensor([0, 4, -100, 2])) for seed in range(3)], edges=False
)
def losses_of_classes(net, x, label):
    kept = label.clamp(min=0)
    return (
        layers.cross_entropy(x, label, label_smoothing=0.1),
        layers.nll_loss(x.log_softmax(1), label, reduction="none"),
        layers.multi_margin_loss(x, kept),
        layers.kl_div(x.log_softmax(1), x.flip(0).softmax(1), reduction="batchmean"),
        layers.multilabel_margin_loss(x, torch.tensor([[3, 0, -1, 1, 1]]).expand(4, 5)),
    )


@ZOO.model(*[(random(4, 5, seed=s), random(4, 5, seed=s + 9)) for s in range(3)], edges=False)
def losses_of_values(net, x, y):
    return (
        layers.smooth_l1_loss(x, y, beta=0.3),
        layers.huber_loss(x, y, delta=0.7, reduction="sum"),
        layers.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=y[0].abs()),
        layers.cosine_embedding_loss(x, y, torch.tensor([1, -1, 1, -1])),
        layers.triplet_margin_loss(x, y, x.flip(0)),
        layers.soft_margin_loss(x, y.sign()),
        layers.poisson_nll_loss(x, y.abs()),
        layers.cosine_similarity(x, y),
        layers.pairwise_distance(x, y),
        torch.cdist(x, y),
    )


@rows(layer=nn.Linear(16, 16))
def dropouts_that_do_nothing(net, x):
    return layers.dropout(net.layer(x), 0.5, net.training), layers.alpha_dropout(x, 0.5, False)


@rows(
    attention=nn.MultiheadAttention(16, 4, batch_first=True),
    encoder=nn.TransformerEncoderLayer(16, 2, 32, batch_first=True, norm_first=True),
)
def attention_layers(net, x):
    y = x[None]
    mask = torch.triu(torch.full((3, 3), -torch.inf), 1)
    return net.attention(y, y, y, attn_mask=mask, need_weights=True), net.encoder(y)


@rows(lstm=nn.LSTM(16, 5, 2, bidirectional=True), gru=nn.GRU(16, 4), plain=nn.RNN(16, 3))
def recurrent_layers(net, x):
    y = x[:, None]
    return net.lstm(y), net.gru(y), net.plain(y), layers.relu(net.gru(y)[1])


@rows(cell=nn.LSTMCell(16, 5), gru=nn.GRUCell(16, 6), plain=nn.RNNCell(16, 2, nonlinearity="relu"))
def recurrent_cells(net, x):
    return net.cell(x), net.gru(x), net.plain(x)
