"""Convolutions and pools."""

from dataclasses import dataclass

import numpy as np

from artifact import Type
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

@op(10, "conv2d", F, conv2d_shape)
def conv2d(c):
    x, f = c.ins[:2]
    y = np.zeros(c.outs[0].dims, x.dtype)
    for tap, out, inside in taps(conv_windows(x.shape, f.shape, c.words)):
        for i in range(x.shape[3]):
            y[out] += x[inside][..., i, None] * f[tap][i]
    return y + c.ins[2] if len(c.ins) == 3 else y

def conv2d_input_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    x = Type(t[0].dtype, (t[1].dims[0], w[9], w[10], t[0].dims[2]))
    need(conv2d_shape([x, t[0]], w[:9]) == [t[1]])
    return [x]

@op(11, "conv2d_input_grad", F, conv2d_input_grad_shape)
def conv2d_input_grad(c):
    f, dy = c.ins
    dx = np.zeros(c.outs[0].dims, f.dtype)
    for tap, out, inside in taps(conv_windows(dx.shape, f.shape, c.words[:9])):
        for i in range(dy.shape[3]):
            dx[inside] += dy[out][..., i, None] * f[tap][:, i]
    return dx

def conv2d_filter_grad_shape(t, w):
    need(len(t) == 2 and t[0].dtype == t[1].dtype and len(w) == 11 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    f = Type(t[0].dtype, (w[9], w[10], t[0].dims[3], t[1].dims[3]))
    need(conv2d_shape([t[0], f], w[:9]) == [t[1]])
    return [f]

@op(12, "conv2d_filter_grad", F, conv2d_filter_grad_shape)
def conv2d_filter_grad(c):
    x, dy = c.ins
    df = np.zeros(c.outs[0].dims, x.dtype)
    for tap, out, inside in taps(conv_windows(x.shape, df.shape, c.words[:9])):
        for images, steps in zip(x[inside], dy[out]):
            terms = images[..., :, None] * steps[..., None, :]
            df[tap] = ordered_sum(terms.reshape(-1, *df.shape[2:]), df[tap])
    return df

def pool_shape(t, w):
    need(len(t) == 1)
    v, h = pool_windows(t[0].dims, w)
    return [Type(t[0].dtype, (t[0].dims[0], v.out, h.out, t[0].dims[3]))]

def pool_grad_shape(t, w):
    need(len(t) == 2 and pool_shape(t[:1], w) == t[1:])
    return t[:1]

def max_pool(x, w, out):
    """The maxima, and the winners' positions in the image."""
    y, winner = np.full(out, -np.inf, x.dtype), np.full(out, -1)
    position = np.arange(x.shape[1] * x.shape[2]).reshape(1, *x.shape[1:3], 1)
    for _, at, inside in taps(pool_windows(x.shape, w)):
        change = ~(x[inside] <= y[at]) & ~np.isnan(y[at])
        winner[at] = np.where(change | (winner[at] < 0), position[inside], winner[at])
        y[at] = np.where(change, x[inside], y[at])
    return y, winner

op(13, "max_pool2d", F, pool_shape)(lambda c: max_pool(c.ins[0], c.words, c.outs[0].dims)[0])

@op(14, "max_pool2d_grad", F, pool_grad_shape)
def max_pool2d_grad(c):
    x, dy = c.ins
    n, h, w, channels = x.shape
    winner = max_pool(x, c.words, dy.shape)[1]
    dx = np.zeros((n, h * w, channels), x.dtype)
    np.add.at(dx, (np.arange(n)[:, None, None, None], winner, np.arange(channels)), dy)
    return dx.reshape(x.shape)
