"""Ops on each element, with broadcasting."""

from functools import partial

import numpy as np

import reals
from artifact import Type
from base import BOOL, F32, I64, NUMPY
from ops.registry import A, F, IN0, IN01, N, SIGNED, broadcast, need, op

def same_shape(t, w):
    need(len(t) == 1 and not w)
    return t

def binary_shape(t, w, out=None):
    need(len(t) == 2 and not w and t[0].dtype == t[1].dtype)
    return [Type(out or t[0].dtype, broadcast(t[0].dims, t[1].dims))]

def relu_grad_shape(t, w):
    need(len(t) == 2 and not w and t[0] == t[1])
    return t[:1]

def select_shape(t, w):
    need(len(t) == 3 and not w and t[0].dtype == t[1].dtype and t[2].dtype == BOOL)
    return [Type(t[0].dtype, broadcast(t[0].dims, t[1].dims, t[2].dims))]

def cast_to(x, source, target):
    x = x != 0 if source == BOOL else x
    if target == BOOL:
        return x != 0
    if x.dtype.kind == "f" and target not in F:
        x, least = x.astype(np.float64), -2.0 ** (63 if target == I64 else 31)
        x = np.where((x >= least) & (x < -least), np.trunc(x), least).astype(np.int64)
    return x.astype(NUMPY[target])

def cast_shape(t, w):
    need(len(t) == 1 and len(w) == 1 and w[0] in N | {BOOL})
    return [Type(w[0], t[0].dims)]

def maximum(a, b):
    return np.where(a <= b, b, np.where(b < a, a, a + b))

def minimum(a, b):
    return np.where(a >= b, b, np.where(b > a, a, a + b))

ELEMENTWISE = [
    (2, "relu", F, IN0, lambda x: np.where(x <= 0, 0, x)), (7, "neg", SIGNED, IN0, np.negative), (29, "identity", A, IN0, np.copy),
    (31, "exp", {F32}, IN0, reals.exp), (32, "log", {F32}, IN0, reals.log), (33, "sqrt", F, IN0, np.sqrt),
    (35, "abs", SIGNED, IN0, np.abs), (42, "tanh", {F32}, IN0, reals.tanh), (43, "sigmoid", {F32}, IN0, reals.sigmoid),
    (52, "logical_not", {BOOL}, IN0, lambda x: x == 0)]
BROADCAST = [
    (1, "add", N, IN01, np.add), (4, "sub", N, IN01, np.subtract), (5, "mul", N, IN01, np.multiply), (6, "div", F, IN01, np.divide),
    (53, "maximum", N, IN01, maximum), (54, "minimum", N, IN01, minimum),
    (63, "logical_and", {BOOL}, IN01, lambda a, b: (a != 0) & (b != 0)),
    (64, "logical_or", {BOOL}, IN01, lambda a, b: (a != 0) | (b != 0))]
COMPARISONS = [(22, "equal", N | {BOOL}, np.equal), (60, "not_equal", N | {BOOL}, np.not_equal), (61, "less", N, np.less),
               (62, "less_equal", N, np.less_equal)]
for n, name, dtypes, in_place, f in ELEMENTWISE:
    op(n, name, dtypes, same_shape, in_place)(lambda c, f=f: f(*c.ins))
for n, name, dtypes, in_place, f in BROADCAST:
    op(n, name, dtypes, binary_shape, in_place)(lambda c, f=f: f(*c.ins))
for n, name, dtypes, f in COMPARISONS:
    op(n, name, dtypes, partial(binary_shape, out=BOOL))(
        lambda c, f=f: f(*(x != 0 if c.types[0].dtype == BOOL else x for x in c.ins)))
op(3, "relu_grad", F, relu_grad_shape, IN0)(lambda c: np.where(c.ins[1] > 0, c.ins[0], 0))
op(66, "select", A, select_shape, IN01)(lambda c: np.where(c.ins[2] != 0, c.ins[0], c.ins[1]))
op(23, "cast", N | {BOOL}, cast_shape)(lambda c: cast_to(c.ins[0], c.types[0].dtype, c.words[0]))
