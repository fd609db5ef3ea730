"""Ops with packed filters. The workspace is not computed: no op reads it."""

import numpy as np

from artifact import Type
from base import I8, I32, signed
from ops.quantized import need_elements, stored
from ops.registry import need, op
from ops.windows import conv_windows, taps

def need_range(words):
    need_elements(I8, *map(signed, words))
    need(signed(words[0]) <= signed(words[1]))

def results(total, channels, once, limits):
    """The results of sums, whose last axis is that of the channels."""
    bias, m, offset, shift = np.moveaxis(channels.astype(np.int64), -1, 0)
    product = (bias + 2 * total) * m
    h = (product - (product < 0)) >> 32 if once else (product + 2**31) >> 32
    h = h if once else h - (h < 0)
    return stored(np.clip(np.clip((h + offset) >> shift, -128, 127), *map(signed, limits)), I8)

def windows_of(t, w):
    need(len(w) == 14 and len(t[0].dims) == 4 and t[0].dtype == I8 and tuple(w[2:4]) == (1, 1) and min(w[12:]) > 0)
    need_elements(I8, signed(w[9]))
    need_range(w[10:12])
    return conv_windows(t[0].dims, w[12:], w[:9])

def conv2d_shape(t, w):
    need(len(t) == 3 and len(t[1].dims) == 2)
    v, h = windows_of(t, w)
    (n, height, width, c), co, (kh, kw) = t[0].dims, t[1].dims[0], w[12:]
    length = -(-kh * kw * c // 8) * 8
    need(length <= (2**31 - 1) // 12 and t[1:] == [Type(I8, (co, length)), Type(I32, (co, 4))])
    pointwise = (kh, kw, *w[:2]) == (1, 1, 1, 1) and (v.out, h.out, v.before, h.before) == (height, width, 0, 0)
    most = max(0 if pointwise else kw * c, co if v.out * h.out % 6 else 0)
    return [Type(I8, (n, v.out, h.out, co)), Type(I32, (3 * length - (-6 * most // 4),))]

def convolved(c, kernel_of_tap, channels):
    """The sums of products with the weights of each tap; an x outside of the image is the zero point."""
    x0 = signed(c.words[9])
    x, total = c.ins[0].astype(np.int64) - x0, np.zeros(c.outs[0].dims, np.int64)
    whole = np.zeros(c.outs[0].dims[-1], np.int64)
    windows = conv_windows(x.shape, c.words[12:], c.words[:9])
    for tap, out, inside in taps(windows):
        total[out] += kernel_of_tap(tap, x[inside])
        whole += kernel_of_tap(tap, np.ones((1, 1, 1, x.shape[3]), np.int64))[0, 0, 0]
    return [results(total + x0 * whole, channels, False, c.words[10:12]), np.zeros(c.outs[1].dims, np.int32)]

@op(134, "packed_conv2d", {I8}, conv2d_shape)
def packed_conv2d(c):
    (kh, kw), channels, co = c.words[12:], c.ins[0].shape[3], c.ins[1].shape[0]
    f = c.ins[1][:, :kh * kw * channels].astype(np.int64).reshape(co, kh, kw, channels)
    return convolved(c, lambda tap, x: x @ f[(slice(None), *tap)].T, c.ins[2])

def depthwise_shape(t, w):
    need(len(t) == 2 and tuple(w[12:]) == (3, 3) and tuple(w[:2]) in ((1, 1), (2, 2)))
    v, h = windows_of(t, w)
    n, _, width, c = t[0].dims
    need(t[1] == Type(I32, (c, 7)))
    needed = w[0] * (3 * -(-h.out // 3) - 1) + 3 if h.out else 0
    columns = max(needed, h.before + width)
    block = -(-c // max(-(-12 * c * columns // 5120), 1))
    return [Type(I8, (n, v.out, h.out, c)), Type(I32, (3 * columns * block - (-(width * c + 6 * block) // 4),))]

@op(135, "packed_depthwise_conv2d", {I8}, depthwise_shape)
def packed_depthwise_conv2d(c):
    f = np.ascontiguousarray(c.ins[1]).view(np.int8)[:, 16:25].astype(np.int64).reshape(-1, 3, 3)
    return convolved(c, lambda tap, x: x * f[(slice(None), *tap)], c.ins[1][:, :4])

def dense_shape(t, w):
    need(len(t) == 3 and len(w) == 4 and w[1] in (1, 2) and t[0].dtype == I8 and t[0].dims)
    need_range(w[2:])
    groups = -(-w[0] // 4)
    need(t[1:] == [Type(I32, (groups, t[0].dims[-1])), Type(I32, (groups, 16))])
    return [Type(I8, (*t[0].dims[:-1], w[0]))]

@op(136, "packed_dense", {I8}, dense_shape)
def packed_dense(c):
    n, roundings, *limits = c.words
    groups, k = c.ins[1].shape
    words = np.frombuffer(c.ins[1].tobytes(), np.uint8).reshape(groups, k, 4)[..., [0, 3, 2, 1]]
    words = (words ^ np.array([128, 0, 128, 0], np.uint8)).view(np.int8).astype(np.int64)
    f = np.moveaxis(words, 2, 1).reshape(4 * groups, k)[:n]
    return results(c.ins[0].astype(np.int64) @ f.T, c.ins[2].reshape(-1, 4)[:n], roundings == 1, limits)
