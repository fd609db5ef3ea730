"""Ops on quantised tensors. Their arithmetic is in `fixed_point`. All numbers are kept as int64 until the result is stored."""

import numpy as np

from artifact import Type
from base import F32, I8, I16, I32, I64, NUMPY, U8, signed
from ops.fixed_point import Multiplier, Result, high, near, wrap
from ops.products import matmul_shape, turned
from ops.reduce import reduce_shape
from ops.registry import IN0, IN01, Q, broadcast, need, op
from ops.windows import conv_windows, pool_shape, pool_windows, taps
from reals import number

QUANTIZED = {I8, U8, I16}

def limits(dtype):
    info = np.iinfo(NUMPY[dtype])
    return int(info.min), int(info.max)

def stored(x, dtype):
    return np.asarray(x).astype(NUMPY[dtype])

def saturated(x, dtype):
    return stored(np.clip(x, *limits(dtype)), dtype)

def numbers(words):
    return [signed(w) for w in words]

def need_elements(dtype, *values):
    need(dtype in QUANTIZED and all(limits(dtype)[0] <= x <= limits(dtype)[1] for x in values))

def need_result(dtype, words):
    need_elements(dtype, *numbers(words))
    need(signed(words[1]) <= signed(words[2]))

def need_scale(word):
    need(0 < number(word) < np.inf)

def quantize_shape(t, w):
    need(len(t) == 1 and len(w) == 3 and t[0].dtype == F32)
    need_elements(w[0], signed(w[2]))
    need_scale(w[1])
    return [Type(w[0], t[0].dims)]

@op(120, "quantize", {F32}, quantize_shape)
def quantize(c):
    dtype, scale, z = c.words[0], number(c.words[1]), signed(c.words[2])
    x = (c.ins[0] / scale).astype(np.float64)
    q = np.copysign(np.floor(np.abs(x) + 0.5), x) + z
    return saturated(np.where(np.isnan(x), z, np.clip(q, *limits(dtype))), dtype)

def dequantize_shape(t, w):
    need(len(t) == 1 and len(w) == 3 and w[0] == F32)
    need_elements(t[0].dtype, signed(w[2]))
    need_scale(w[1])
    return [Type(F32, t[0].dims)]

@op(121, "dequantize", QUANTIZED, dequantize_shape)
def dequantize(c):
    return number(c.words[1]) * (c.ins[0].astype(np.int64) - signed(c.words[2])).astype("<f4")

def requantize_shape(t, w):
    need(len(t) == 1 and len(w) == 5 and Multiplier.of(w[2:4]).valid())
    need_elements(t[0].dtype, signed(w[1]))
    need_elements(w[0], signed(w[4]))
    return [Type(w[0], t[0].dims)]

@op(122, "requantize", QUANTIZED, requantize_shape)
def requantize(c):
    dtype, x0, _, _, z = numbers(c.words)
    return saturated(wrap(Multiplier.of(c.words[2:4]).twice(c.ins[0].astype(np.int64) - x0) + z), dtype)

def lookup_shape(t, w):
    need(len(t) == 2 and not w)
    narrow = {x.dtype for x in t} <= {I8, U8} and t[1].dims == (256,)
    need(narrow or (t[0].dtype == I16 and t[1] == Type(I16, (513,))))
    return [Type(t[1].dtype, t[0].dims)]

@op(123, "lookup", QUANTIZED, lookup_shape, IN0)
def lookup(c):
    x = c.ins[0].astype(np.int64)
    if c.types[0].dtype == I16:
        return stored(between(c.ins[1].astype(np.int64), x), I16)
    return c.ins[1][x - limits(c.types[0].dtype)[0]]

def need_filter(t, channels):
    """The operands of an op with a filter, a bias and multipliers."""
    x, f, bias, multipliers = t
    need(x.dtype in Q and f.dtype == I8 and bias.dims == (channels,) and (bias.dtype == I32 or (bias.dtype, x.dtype) == (I64, I16)))
    need(multipliers in (Type(I32, (1, 2)), Type(I32, (channels, 2))))

def finish(c, total, result, once=False):
    """Adds the bias to sums with the channel as last axis, and converts them to results."""
    bias, pairs = c.ins[2].astype(np.int64), c.ins[3].astype(np.int64)
    m = Multiplier(pairs[:, 0], pairs[:, 1])
    m = Multiplier(np.where(m.valid(), m.v, 0), np.where(m.valid(), m.e, 0))
    is_wide = c.types[2].dtype == I64
    total = total + bias if is_wide else wrap(total + bias)
    product = m.once if once else m.wide if is_wide else m.twice
    return stored(result(product(total)), c.types[0].dtype)

def dense_shape(t, w):
    need(len(t) == 4 and len(w) == 5 and len(t[1].dims) == 2 and t[0].dims and t[0].dims[-1] == t[1].dims[1] and w[1] in (1, 2))
    need_filter(t, t[1].dims[0])
    need_elements(t[0].dtype, signed(w[0]))
    need_result(t[0].dtype, w[2:])
    return [Type(t[0].dtype, t[0].dims[:-1] + t[1].dims[:1])]

@op(124, "quantized_dense", Q, dense_shape)
def quantized_dense(c):
    x0, roundings, *result = numbers(c.words)
    total = (c.ins[0].astype(np.int64) - x0) @ c.ins[1].astype(np.int64).T
    return finish(c, total, Result(*result), roundings == 1)

def windowed_shape(t, w):
    """Checks what both convolutions have in common. Returns the dimensions of y for a filter of `[…, kh, kw, …]`."""
    need(len(t) == 4 and len(w) == 13 and len(t[0].dims) == 4 and len(t[1].dims) == 4)
    need_elements(t[0].dtype, signed(w[9]))
    need_result(t[0].dtype, w[10:])
    return [x.out for x in conv_windows(t[0].dims, t[1].dims[1:3], w[:9])]

def conv2d_shape(t, w):
    oh, ow = windowed_shape(t, w)
    c, (co, _, _, ci) = t[0].dims[3], t[1].dims
    need_filter(t, co)
    need(c == ci == 0 or (ci and c and c % ci == 0 and co % (c // ci) == 0))
    return [Type(t[0].dtype, (t[0].dims[0], oh, ow, co))]

def taps_of(c, kernel):
    return taps(conv_windows(c.ins[0].shape, kernel, c.words[:9]))

@op(125, "quantized_conv2d", Q, conv2d_shape)
def quantized_conv2d(c):
    x0, *result = numbers(c.words[9:])
    x, f = c.ins[0].astype(np.int64) - x0, c.ins[1].astype(np.int64)
    co, kh, kw, ci = f.shape
    groups = x.shape[3] // ci if ci else 1
    of_group, total = co // groups, np.zeros(c.outs[0].dims, np.int64)
    for (i, j), out, inside in taps_of(c, (kh, kw)):
        for g in range(groups):
            channels = slice(g * of_group, (g + 1) * of_group)
            total[out][..., channels] += x[inside][..., g * ci:(g + 1) * ci] @ f[channels, i, j].T
    return finish(c, total, Result(*result))

def depthwise_shape(t, w):
    oh, ow = windowed_shape(t, w)
    c, (first, _, _, co) = t[0].dims[3], t[1].dims
    need_filter(t, co)
    need(first == 1 and (co % c == 0 if c else co == 0))
    return [Type(t[0].dtype, (t[0].dims[0], oh, ow, co))]

@op(126, "quantized_depthwise_conv2d", Q, depthwise_shape)
def quantized_depthwise_conv2d(c):
    x0, *result = numbers(c.words[9:])
    x, f = c.ins[0].astype(np.int64) - x0, c.ins[1].astype(np.int64)
    _, kh, kw, co = f.shape
    x = np.repeat(x, co // x.shape[3] if co else 0, axis=3)
    total = np.zeros(c.outs[0].dims, np.int64)
    for (i, j), out, inside in taps_of(c, (kh, kw)):
        total[out] += x[inside] * f[0, i, j]
    return finish(c, total, Result(*result))

def pair_shape(t, w, words):
    need(len(t) == 2 and len(w) == words and t[0].dtype == t[1].dtype and t[0].dtype in Q)
    need_elements(t[0].dtype, *numbers(w[:2]))
    need_result(t[0].dtype, w[2:5])
    need(all(Multiplier.of(w[i:i + 2]).valid() for i in range(5, words - 1, 2)))
    return [Type(t[0].dtype, broadcast(t[0].dims, t[1].dims))]

def add_shape(t, w):
    need(len(w) == 12 and w[11] <= 1)
    return pair_shape(t, w, 12)

def pair(c):
    """The operands without their zero points, and the result."""
    return [x.astype(np.int64) - z for x, z in zip(c.ins, numbers(c.words))], Result(*numbers(c.words[2:5]))

@op(127, "quantized_add", Q, add_shape, IN01)
def quantized_add(c):
    operands, result = pair(c)
    s = 15 if c.types[0].dtype == I16 else 20
    a, b = (Multiplier.of(c.words[i:i + 2]).twice(wrap(x << s)) for x, i in zip(operands, (5, 7)))
    total = wrap(a - b if c.words[11] else a + b)
    return stored(result(Multiplier.of(c.words[9:11]).twice(total)), c.types[0].dtype)

@op(128, "quantized_mul", Q, lambda t, w: pair_shape(t, w, 7), IN01)
def quantized_mul(c):
    (a, b), result = pair(c)
    return stored(result(Multiplier.of(c.words[5:7]).twice(wrap(a * b))), c.types[0].dtype)

def quantized_matmul_shape(t, w):
    need(len(w) == 9 and t[0].dtype in Q and Multiplier.of(w[5:7]).valid())
    need_elements(t[0].dtype, *numbers(w[:2]))
    need_result(t[0].dtype, w[2:5])
    return matmul_shape(t, w[7:])

@op(137, "quantized_matmul", Q, quantized_matmul_shape)
def quantized_matmul(c):
    (a, b), result = pair(c)
    m, total = Multiplier.of(c.words[5:7]), turned(a, c.words[7]) @ turned(b, c.words[8])
    return stored(result(m.wide(total) if c.types[0].dtype == I16 else m.twice(wrap(total))), c.types[0].dtype)

def squared_difference_shape(t, w):
    need(len(w) == 11 and t[0].dtype == I8)
    need(all(Multiplier.of(w[i:i + 2]).valid() for i in (5, 7, 9)))
    return pair_shape(t, w, 11)

@op(138, "quantized_squared_difference", {I8}, squared_difference_shape, IN01)
def quantized_squared_difference(c):
    operands, result = pair(c)
    a, b = (Multiplier.of(c.words[i:i + 2]).twice(x << 7) for x, i in zip(operands, (5, 7)))
    d = wrap(a - b)
    return stored(result(Multiplier.of(c.words[9:11]).twice(wrap(d * d))), I8)

def resize_shape(t, w):
    need(len(t) == 1 and len(w) == 3 and t[0].dtype in Q and len(t[0].dims) == 4 and 0 not in t[0].dims[1:3])
    need(all(1 <= side <= 65536 for side in w[:2]) and w[2] <= 2)
    n, _, _, channels = t[0].dims
    return [Type(t[0].dtype, (n, w[0], w[1], channels))]

def places(sides, count, centres):
    """The pixels before and after each pixel of the result, and their weights."""
    f, t = (sides - 1, count - 1) if centres == 2 and count > 1 else (sides, count)
    scale = (1024 * f + t // 2) // t
    at = np.arange(count, dtype=np.int64) * scale + (scale // 2 - 512 if centres == 1 else 0)
    before, after = (np.clip(np.sign(x) * (np.abs(x) // 1024), 0, sides - 1) for x in (at, at + 1023))
    part = at - 1024 * before
    return [(before, 1024 - part), (after, part)]

@op(139, "quantized_resize_bilinear", Q, resize_shape)
def quantized_resize_bilinear(c):
    x, (height, width, centres) = c.ins[0].astype(np.int64), c.words
    total = np.zeros(c.outs[0].dims, np.int64)
    for rows, vertical in places(x.shape[1], height, centres):
        for columns, horizontal in places(x.shape[2], width, centres):
            total += x[:, rows][:, :, columns] * (vertical[:, None] * horizontal[None, :])[None, :, :, None]
    up = np.where(total > 0, total + 2**19, total - 2**19)
    return stored(np.sign(up) * (np.abs(up) >> 20), c.types[0].dtype)

def normalize_shape(t, w):
    need(len(t) == 1 and len(w) == 1 and t[0].dtype == I8 and t[0].dims)
    need_elements(I8, signed(w[0]))
    return t[:1]

def root(x):
    """1 / sqrt(x) as the value and the exponent of a multiplier."""
    if x <= 1:
        return 2**31 - 1, 0
    q = (32 - x.bit_length() - 1) // 2 - 1
    a = x << (2 * q) if q >= 0 else x >> (-2 * q)
    half, r = near(np.int64(a >> 1), 1), np.int64(2**28)
    limit = lambda y: np.clip(y, -2**31, 2**31 - 1)
    for _ in range(5):
        cube = limit(high(high(r, r), r) << 6)
        r = limit((high(np.int64(3 << 27), r) - high(half, cube)) << 3)
    v = high(r, np.int64(1518500250))
    return (wrap(v << (q - 11)), 0) if q > 11 else (v, q - 11)

@op(140, "quantized_l2_normalize", {I8}, normalize_shape, IN0)
def quantized_l2_normalize(c):
    x = c.ins[0].astype(np.int64) - signed(c.words[0])
    lanes = x.reshape(int(np.prod(x.shape[:-1])), x.shape[-1])
    scales = [root(max(int(wrap(np.sum(lane * lane))), 0)) for lane in lanes]
    y = [Multiplier(np.int64(v), np.int64(e + 7)).twice(lane) for lane, (v, e) in zip(lanes, scales)]
    return stored(np.clip(np.reshape(y, x.shape), -128, 127), I8)

def avg_pool_shape(t, w):
    need(len(t) == 1 and len(w) == 7 and t[0].dtype in Q)
    need_result(t[0].dtype, [0, *w[5:]])
    return pool_shape(t, w[:5])

@op(129, "quantized_avg_pool2d", Q, avg_pool_shape)
def quantized_avg_pool2d(c):
    x, total, count = c.ins[0], np.zeros(c.outs[0].dims, np.int64), np.zeros(c.outs[0].dims, np.int64)
    for _, out, inside in taps(pool_windows(x.shape, c.words[:5])):
        total[out] += x[inside]
        count[out] += 1
    total = wrap(total)
    up = np.where(total > 0, total + count // 2, total - count // 2)
    quotient = np.sign(up) * (np.abs(up) // np.maximum(count, 1))
    return stored(np.clip(quotient, *numbers(c.words[5:])), c.types[0].dtype)

def mean_shape(t, w):
    need(len(t) == 1 and len(w) >= 5 and t[0].dtype in Q and Multiplier.of(w[2:4]).valid())
    need_elements(t[0].dtype, *numbers(w[:2]))
    return reduce_shape(t, w[4:])

@op(130, "quantized_mean", Q, mean_shape)
def quantized_mean(c):
    x0, y0 = numbers(c.words[:2])
    total = np.sum(c.ins[0].astype(np.int64) - x0, axis=tuple(c.words[5:]))
    y = saturated(wrap(Multiplier.of(c.words[2:4]).twice(wrap(total)) + y0), c.types[0].dtype)
    return y.reshape(c.outs[0].dims)

def softmax_shape(t, w):
    need(len(t) == 2 and t[0].dims and t[0].dtype in Q)
    if t[0].dtype == I16:
        need(len(w) == 2 and Multiplier.of(w).valid() and t[1] == Type(I16, (2, 513)))
    else:
        need(not w and t[1].dtype == I32 and len(t[1].dims) == 1 and 1 <= t[1].dims[0] <= 256)
    return t[:1]

def inverse(x):
    h = (x + 2**31) >> 1
    y = wrap(1515870810 + high(h, np.int64(-1010580540)))
    for _ in range(3):
        y = wrap(y + np.clip(4 * high(y, wrap(2**29 - high(h, y))), -2**31, 2**31 - 1))
    return np.clip(2 * y, -2**31, 2**31 - 1)

def softmax8(x, table):
    d = np.max(x, axis=-1, keepdims=True) - x
    e = np.where(d < len(table), table[np.minimum(d, len(table) - 1)], 0)
    total = np.sum(near(e, 12), axis=-1, keepdims=True) & 0xFFFFFFFF
    n = 32 - np.vectorize(lambda s: int(s).bit_length(), otypes=[np.int64])(total)
    r = inverse((total << n) % 2**31)
    return np.where(n < 4, -128, np.clip(near(high(r, e), np.minimum(35 - n, 31)) - 128, -128, 127))

def between(table, x):
    x = np.clip(x, -2**15, 2**15 - 1)
    i = 256 + (x >> 7)
    d = wrap(table[i + 1] - table[i], 16)
    return wrap(table[i] + ((d * (x % 128) + 64) >> 7), 16)

def softmax16(x, table, m):
    e = between(table[0], m.twice(x - np.max(x, axis=-1, keepdims=True)) + 32767)
    total = wrap(np.sum(e, axis=-1, keepdims=True))
    n = np.vectorize(lambda s: max(int(s), 2).bit_length() - 1, otypes=[np.int64])(total)
    r = between(table[1], wrap(((total << (30 - n)) + 2**13) >> 14) - 98304)
    return np.clip((e * r + (np.int64(1) << (n - 1))) >> n, 0, 32767)

@op(131, "quantized_softmax", Q, softmax_shape, IN0)
def quantized_softmax(c):
    x, table = (part.astype(np.int64) for part in c.ins)
    if x.size == 0:
        return c.ins[0].copy()
    return stored(softmax16(x, table, Multiplier.of(c.words)) if c.words else softmax8(x, table), c.types[0].dtype)

def sigmoid_shape(t, w):
    need(len(t) == 2 and len(w) == 3 and t[0].dtype == I16 and t[1] == Type(I16, (256,)))
    need(w[0] < 2**15 and w[1] < 32 and w[2] <= 1)
    return t[:1]

@op(132, "quantized_sigmoid", {I16}, sigmoid_shape, IN0)
def quantized_sigmoid(c):
    x, (multiplier, shift, tangent) = c.ins[0].astype(np.int64), c.words
    table = c.ins[1].astype(np.int64) & 0xFFFF
    x = (x * multiplier + (2**shift >> 1)) >> shift
    b, limit, middle, drop = (8, 65535, 0, 8) if tangent else (9, 65534, 2**24, 10)
    i, part = np.abs(x) >> b, np.abs(x) % 2**b
    at = np.minimum(i, 254)
    value = np.where(i >= 255, limit << b, (table[at] << b) + part * (table[at + 1] - table[at]))
    w = value - 2**(15 + b)
    w = np.where(x < 0, -1 - w, w)
    return stored(wrap((middle + 2**(drop - 1) + w) >> drop, 16), I16)
