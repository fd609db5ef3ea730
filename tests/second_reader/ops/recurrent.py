"""The steps of a quantised LSTM, with gemmlowp's functions of 16 bits, and of a singular value decomposition filter."""

import numpy as np

from artifact import Type
from base import I8, I16, I32, signed
from ops.fixed_point import Multiplier, near, wrap
from ops.quantized import need_elements, stored
from ops.registry import need, op

FACTORS = (25520, 19875, 12055, 4435, 600, 11, 0)

def short(x):
    return np.clip(x, -2**15, 2**15 - 1)

def product(a, b):
    return short((a * b + 2**14) >> 15)

def exp(x, n):
    q = 2**(13 - n)
    part = x % q - q
    rest = part - x
    p = part * 2**n + 4096
    s = product(p, p)
    third, fourth = product(s, p), product(s, s)
    higher = near(product(near(fourth, 2) + third, 10923) + s, 1)
    r = short(28918 + product(28918, p + higher))
    for e in range(min(n + 2, len(FACTORS))):
        r = np.where(rest >> (13 - n + e) & 1, product(r, FACTORS[e]), r)
    if n > 5:
        r = np.where(x < -2**(20 - n), 0, r)
    return np.where(x == 0, 32767, r)

def inverse(x):
    half = (x + 32768) // 2
    y = 23130 + product(half, -15420)
    for _ in range(3):
        y = wrap(y + short(4 * product(y, 8192 - product(half, y))), 16)
    return y

def logistic(x, n):
    v = short(2 * inverse(exp(-np.abs(x), n)))
    return np.where(x == 0, 16384, np.where(x > 0, v, 32767 - v))

def tanh(x, n):
    v = short(4 * (inverse(exp(-np.abs(x), n + 1)) - 8192))
    return np.where(x == 0, 0, np.where(x > 0, v, -v))

def lstm_shape(t, w):
    need(len(t) == 7 and len(w) == 6 and all(len(x.dims) == 2 for x in t[:3]))
    (b, k), (_, c) = t[0].dims, t[1].dims
    need(t == [Type(I8, (b, k)), Type(I8, (b, c)), Type(I16, (b, c)), Type(I8, (4 * c, k)), Type(I8, (4 * c, c)), Type(I32, (4 * c,)),
               Type(I32, (8, 2))])
    need_elements(I8, signed(w[0]), signed(w[1]))
    need(Multiplier.of(w[2:4]).valid() and w[4] <= 6 and w[5] < 2**15)
    return [t[1], t[2]]

@op(133, "quantized_lstm_step", {I8}, lstm_shape)
def quantized_lstm_step(c):
    x, output, cell, weights, recurrent, bias, pairs = (part.astype(np.int64) for part in c.ins)
    (x0, y0), h, (bits, clip) = map(signed, c.words[:2]), Multiplier.of(c.words[2:4]), c.words[4:]
    units = cell.shape[1]

    def gate(g):
        rows = slice(g * units, (g + 1) * units)
        m = [Multiplier(*pairs[i]) if Multiplier(*pairs[i]).valid() else Multiplier(0, 0) for i in (g, 4 + g)]
        of_x = m[0].twice(wrap(bias[rows] + (x - x0) @ weights[rows].T))
        return short(wrap(short(of_x) + m[1].twice(wrap((output - y0) @ recurrent[rows].T))))

    i, f, o = (logistic(gate(g), 3) for g in (0, 1, 3))
    following = short(near(f * cell, 15) + near(i * tanh(gate(2), 3), 15 + bits))
    if clip:
        following = np.clip(following, -clip, clip)
    y = np.clip(wrap(h.twice(o * tanh(following, bits)) + y0), -128, 127)
    return [stored(y, I8), stored(following, I16)]

def svdf_shape(t, w):
    need(len(t) == 5 and len(w) == 6 and len(t[0].dims) == len(t[1].dims) == len(t[2].dims) == 2 and len(t[3].dims) == 1)
    (b, k), (f, _), (_, m), (u,) = (x.dims for x in t[:4])
    need(t == [Type(I8, (b, k)), Type(I8, (f, k)), Type(I16, (f, m)), Type(I32, (u,)), Type(I16, (b, f, m))])
    need(m > 0 and u > 0 and f % u == 0)
    need_elements(I8, signed(w[0]), signed(w[1]))
    need(Multiplier.of(w[2:4]).valid() and Multiplier.of(w[4:]).valid())
    return [Type(I8, (b, u)), t[4]]

@op(141, "quantized_svdf_step", {I8}, svdf_shape, {(4, 1)})
def quantized_svdf_step(c):
    x, features, time, bias, state = (part.astype(np.int64) for part in c.ins)
    (x0, y0), s, h = map(signed, c.words[:2]), Multiplier.of(c.words[2:4]), Multiplier.of(c.words[4:])
    newest = short(s.twice(wrap((x - x0) @ features.T)))
    following = np.concatenate([state[:, :, 1:], newest[:, :, None]], axis=2)
    sums = np.sum(following * time, axis=2).reshape(len(x), len(bias), len(time) // len(bias))
    y = np.clip(wrap(h.twice(wrap(bias + np.sum(sums, axis=2))) + y0), -128, 127)
    return [stored(y, I8), stored(following, I16)]
