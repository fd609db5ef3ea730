"""Reductions, and softmax with its losses."""

from functools import partial
from math import prod

import numpy as np

import reals
from artifact import Type
from base import F32, I32, I64, NUMPY
from ops.elementwise import maximum
from ops.registry import F, IN0, N, data_error, need, op, ordered_sum

def reduce_shape(t, w):
    need(len(t) == 1 and w and w[0] <= 1)
    (keep, *axes), dims = w, t[0].dims
    need(axes == sorted(set(axes)) and all(a < len(dims) for a in axes))
    return [Type(t[0].dtype, tuple(1 if i in axes else d for i, d in enumerate(dims) if keep or i not in axes))]

def reduce_op(c, start, step, end=lambda acc, n: acc):
    x, axes = c.ins[0], c.words[1:]
    kept = [i for i in range(x.ndim) if i not in axes]
    n = prod(x.shape[a] for a in axes)
    lanes = x.transpose(axes + kept).reshape([n] + [x.shape[i] for i in kept])
    acc = np.full(lanes.shape[1:], start(x.dtype), x.dtype)
    for lane in lanes:
        acc = step(acc, lane)
    return np.asarray(end(acc, n)).reshape(c.outs[0].dims)

def least(dtype):
    return -np.inf if dtype.kind == "f" else np.iinfo(dtype).min

for n, name, dtypes, *steps in [
        (19, "sum", N, lambda _: 0, np.add), (20, "mean", F, lambda _: 0, np.add, lambda acc, n: acc / acc.dtype.type(n)),
        (70, "max", N, least, maximum)]:
    op(n, name, dtypes, reduce_shape)(lambda c, steps=steps: reduce_op(c, *steps))

def arg_shape(t, w):
    need(len(t) == 1 and len(w) == 2 and w[0] < len(t[0].dims) and t[0].dims[w[0]] and w[1] in (I32, I64))
    return [Type(w[1], t[0].dims[:w[0]] + t[0].dims[w[0] + 1:])]

@op(21, "argmax", N, arg_shape)
def argmax(c):
    lanes = np.moveaxis(c.ins[0], c.words[0], 0)
    best, position = np.full(lanes.shape[1:], least(lanes.dtype), lanes.dtype), np.zeros(lanes.shape[1:], NUMPY[c.words[1]])
    for i, x in enumerate(lanes):
        best, position = np.where(x > best, x, best), np.where(x > best, position.dtype.type(i), position)
    return position

def softmax_shape(t, w):
    need(len(t) == 1 and len(w) == 1 and w[0] < len(t[0].dims))
    return t

def shifted(x, axis):
    """x − shift, reals.exp(x − shift), and its sum, in lanes along axis 0."""
    lanes = np.moveaxis(x, axis, 0)
    shift = np.full(lanes.shape[1:], -np.inf, lanes.dtype)
    for x in lanes:
        shift = np.where(x > shift, x, shift)
    e = reals.exp(lanes - shift)
    return lanes - shift, e, ordered_sum(e, np.zeros(shift.shape, e.dtype))

@op(15, "softmax", {F32}, softmax_shape, IN0)
def softmax(c):
    _, e, total = shifted(c.ins[0], c.words[0])
    return np.moveaxis(e / total, 0, c.words[0])

def entropy_shape(t, w, inputs):
    need(len(t) == inputs and not w and t[0].dims and t[1].dtype in (I32, I64) and t[1].dims == t[0].dims[:-1])
    losses = Type(t[0].dtype, t[1].dims)
    need(inputs == 2 or t[2] == losses)
    return [losses] if inputs == 2 else t[:1]

def of_label(logits, labels):
    """True for the class of the label, with the classes in axis 0."""
    data_error(7, "label out of range", (labels < 0) | (labels >= logits.shape[-1]))
    return np.moveaxis(labels[..., None] == np.arange(logits.shape[-1]), -1, 0)

@op(17, "sparse_softmax_cross_entropy", {F32}, partial(entropy_shape, inputs=2))
def entropy(c):
    hit = of_label(*c.ins)
    x, _, total = shifted(c.ins[0], -1)
    return reals.log(total) - np.take_along_axis(x, np.argmax(hit, axis=0)[None], 0)[0]

@op(18, "sparse_softmax_cross_entropy_grad", {F32}, partial(entropy_shape, inputs=3), IN0)
def entropy_grad(c):
    hit = of_label(*c.ins[:2])
    _, e, total = shifted(c.ins[0], -1)
    p = e / total
    return np.moveaxis(np.where(hit, p - 1, p) * c.ins[2], 0, -1)
