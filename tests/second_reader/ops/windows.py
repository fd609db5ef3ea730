"""Convolutions and pools."""

from dataclasses import dataclass

import numpy as np

from artifact import Type
from base import I16, I8, U8
from ops.registry import F, need, op, ordered_sum

@dataclass(frozen=True)
class Window:
    """A window that slides along one axis of an image."""
    size: int
    taps: int
    stride: int
    dilation: int
    before: int
    out: int

    def span(self, tap):
        """The output positions whose tap is inside of the image, and the image positions that it is on."""
        at = tap * self.dilation - self.before
        low = max(0, -(at // self.stride))
        high = max(low, min(self.out, (self.size - 1 - at) // self.stride + 1))
        first = low * self.stride + at
        return slice(low, high), slice(first, first + (high - low) * self.stride, self.stride) if high > low else slice(0, 0)

def window(size, taps, stride, dilation, padding, before, after):
    need(min(taps, stride, dilation) >= 1 and padding <= 2 and (padding == 2 or before == after == 0))
    w = (taps - 1) * dilation + 1
    if padding == 1:
        out = -(-size // stride)
        reach = (max(out, 1) - 1) * stride + w
        before = max(reach - size, 0) // 2
    else:
        need(before + size + after + stride - w >= 0)
        out, reach = (before + size + after + stride - w) // stride, 0
    need(max(stride, w, before + size + after, reach) < 2**31)
    return Window(size, taps, stride, dilation, before, out)

def conv_windows(image, taps, w):
    need(len(image) == 4 and len(w) == 9)
    return [window(image[1 + i], taps[i], w[i], w[2 + i], w[4], w[5 + 2 * i], w[6 + 2 * i]) for i in (0, 1)]

def pool_windows(image, w):
    need(len(w) == 5 and w[4] <= 1)
    return conv_windows(image, w[:2], [*w[2:4], 1, 1, w[4], 0, 0, 0, 0])

def taps(windows):
    """For each tap, in row-major order: the tap, and the places that it pairs in the output and in the image."""
    v, h = windows
    for i in range(v.taps):
        for j in range(h.taps):
            (out_v, in_v), (out_h, in_h) = v.span(i), h.span(j)
            yield (i, j), (slice(None), out_v, out_h), (slice(None), in_v, in_h)

def conv2d_shape(t, w):
    need(len(t) in (2, 3) and all(x.dtype == t[0].dtype for x in t) and len(t[1].dims) == 4 and len(t[0].dims) == 4)
    (n, _, _, c), (kh, kw, ci, co) = t[0].dims, t[1].dims
    need(ci == c and (len(t) == 2 or t[2].dims == (co,)))
    v, h = conv_windows(t[0].dims, (kh, kw), w)
    return [Type(t[0].dtype, (n, v.out, h.out, co))]

def convolution(ins, words, dims):
    x, f = ins[:2]
    y = np.zeros(dims, x.dtype)
    for tap, out, inside in taps(conv_windows(x.shape, f.shape, words)):
        for i in range(x.shape[3]):
            y[out] += x[inside][..., i, None] * f[tap][i]
    return y + ins[2] if len(ins) == 3 else y

op(10, "conv2d", F, conv2d_shape)(lambda c: convolution(c.ins, c.words, c.outs[0].dims))

def conv2d_input_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    x = Type(t[0].dtype, (t[1].dims[0], w[9], w[10], t[0].dims[2]))
    need(conv2d_shape([x, t[0]], w[:9]) == [t[1]])
    return [x]

def input_gradient(f, dy, words, dims, counts=None):
    """counts is true for the elements of dy whose products count; by default, for all."""
    dx = np.zeros(dims, f.dtype)
    counts = np.ones(dy.shape, bool) if counts is None else counts
    for tap, out, inside in taps(conv_windows(dx.shape, f.shape, words)):
        for i in range(dy.shape[3]):
            dx[inside] += np.where(counts[out][..., i, None], dy[out][..., i, None] * f[tap][:, i], f.dtype.type(0))
    return dx

op(11, "conv2d_input_grad", F, conv2d_input_grad_shape)(lambda c: input_gradient(*c.ins, c.words[:9], c.outs[0].dims))

def conv2d_filter_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    f = Type(t[0].dtype, (w[9], w[10], t[0].dims[3], t[1].dims[3]))
    need(conv2d_shape([t[0], f], w[:9]) == [t[1]])
    return [f]

def filter_gradient(x, dy, words, dims, counts=None):
    """counts as above."""
    df = np.zeros(dims, x.dtype)
    counts = np.ones(dy.shape, bool) if counts is None else counts
    for tap, out, inside in taps(conv_windows(x.shape, df.shape, words)):
        for images, steps, count in zip(x[inside], dy[out], counts[out]):
            terms = np.where(count[..., None, :], images[..., :, None] * steps[..., None, :], x.dtype.type(0))
            df[tap] = ordered_sum(terms.reshape(-1, *df.shape[2:]), df[tap])
    return df

op(12, "conv2d_filter_grad", F, conv2d_filter_grad_shape)(lambda c: filter_gradient(*c.ins, c.words[:9], c.outs[0].dims))

def pool_shape(t, w):
    need(len(t) == 1)
    v, h = pool_windows(t[0].dims, w)
    return [Type(t[0].dtype, (t[0].dims[0], v.out, h.out, t[0].dims[3]))]

def pool_grad_shape(t, w):
    need(len(t) == 2 and pool_shape(t[:1], w) == t[1:])
    return t[:1]

def max_pool(x, w, out):
    """The maxima, and the winners' positions in the image."""
    least = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    y, winner = np.full(out, least, x.dtype), np.full(out, -1)
    position = np.arange(x.shape[1] * x.shape[2]).reshape(1, *x.shape[1:3], 1)
    for _, at, inside in taps(pool_windows(x.shape, w)):
        change = ~(x[inside] <= y[at]) & ~np.isnan(y[at])
        winner[at] = np.where(change | (winner[at] < 0), position[inside], winner[at])
        y[at] = np.where(change, x[inside], y[at])
    return y, winner

op(13, "max_pool2d", F | {I8, U8, I16}, pool_shape)(lambda c: max_pool(c.ins[0], c.words, c.outs[0].dims)[0])

@op(14, "max_pool2d_grad", F, pool_grad_shape)
def max_pool2d_grad(c):
    x, dy = c.ins
    n, h, w, channels = x.shape
    winner = max_pool(x, c.words, dy.shape)[1]
    dx = np.zeros((n, h * w, channels), x.dtype)
    np.add.at(dx, (np.arange(n)[:, None, None, None], winner, np.arange(channels)), dy)
    return dx.reshape(x.shape)

def fused_pool(t, conv, tall, wide):
    """The type of the convolution's result, and the dimensions of the pooled one."""
    need(conv[3] == 1 and 1 <= tall * wide <= 255)
    full = conv2d_shape(t, conv)[0]
    n, h, w, co = full.dims
    return full, (n, h // tall, w // wide, co)

def conv2d_max_pool2d_shape(t, w):
    need(len(w) == 12 and w[11] <= 1)
    full, dims = fused_pool(t, w[:9], *w[9:11])
    return [Type(full.dtype, dims), Type(U8, dims), Type(full.dtype, full.dims[2:])]

@op(113, "conv2d_max_pool2d", F, conv2d_max_pool2d_shape)
def conv2d_max_pool2d(c):
    tall, wide, relu = c.words[9:]
    type_, dims = fused_pool(c.types, c.words[:9], tall, wide)
    full = convolution(c.ins, c.words[:9], type_.dims)
    row = full[-1, dims[1] * tall - 1] if dims[0] and dims[1] else np.zeros(type_.dims[2:], full.dtype)
    if relu:
        full = np.where(full <= 0, full.dtype.type(0), full)
    y, winner = max_pool(full, [tall, wide, tall, wide, 0], dims)
    down, across = np.divmod(winner, type_.dims[2])
    winner = down % tall * wide + across % wide
    return [y, np.where((y > 0) | (relu == 0), winner, 255).astype(np.uint8), row]

def spread(dy, winners, tall, wide, dims):
    """The gradient of the convolution's result, and the elements in it that are winners."""
    d, counts = np.zeros(dims, dy.dtype), np.zeros(dims, bool)
    for position in range(tall * wide):
        down, across = divmod(position, wide)
        at = np.s_[:, down:dy.shape[1] * tall:tall, across:dy.shape[2] * wide:wide]
        d[at], counts[at] = np.where(winners == position, dy, dy.dtype.type(0)), winners == position
    return d, counts

def fused_gradient(t, w, x, f):
    need(len(t) == 3 and len(w) == 13 and t[0].dtype == t[1].dtype and t[2] == Type(U8, t[1].dims))
    full, dims = fused_pool([x, f], w[:9], *w[11:])
    need(t[1].dims == dims)
    return full.dims

def conv2d_max_pool2d_filter_grad_shape(t, w):
    need(len(t) == 3 and len(w) == 13 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    f = Type(t[0].dtype, (w[9], w[10], t[0].dims[3], t[1].dims[3]))
    fused_gradient(t, w, t[0], f)
    return [f, Type(f.dtype, f.dims[3:])]

@op(114, "conv2d_max_pool2d_filter_grad", F, conv2d_max_pool2d_filter_grad_shape)
def conv2d_max_pool2d_filter_grad(c):
    x, dy, winners = c.ins
    d, counts = spread(dy, winners, *c.words[11:], fused_gradient(c.types, c.words, c.types[0], c.outs[0]))
    dbias = ordered_sum(d.reshape(d.size // max(d.shape[3], 1), d.shape[3]), np.zeros(d.shape[3], d.dtype))
    return [filter_gradient(x, d, c.words[:9], c.outs[0].dims, counts), dbias]

def conv2d_max_pool2d_input_grad_shape(t, w):
    need(len(t) == 3 and len(w) == 13 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    x = Type(t[0].dtype, (t[1].dims[0], w[9], w[10], t[0].dims[2]))
    fused_gradient(t, w, x, t[0])
    return [x]

@op(115, "conv2d_max_pool2d_input_grad", F, conv2d_max_pool2d_input_grad_shape)
def conv2d_max_pool2d_input_grad(c):
    f, dy, winners = c.ins
    d, counts = spread(dy, winners, *c.words[11:], fused_gradient(c.types, c.words, c.outs[0], c.types[0]))
    return input_gradient(f, d, c.words[:9], c.outs[0].dims, counts)
