"""Products of matrices."""

from math import prod

import numpy as np

from artifact import Type
from base import I32
from ops.registry import F, broadcast, need, op

def product(a, b):
    """a · b over the last axis of a and the last but one of b, summed in order."""
    dims = broadcast(a.shape[:-2], b.shape[:-2]) + (a.shape[-2], b.shape[-1])
    acc, term = np.zeros(dims, a.dtype), np.empty(dims, a.dtype)
    for k in range(a.shape[-1]):
        np.multiply(a[..., :, k, None], b[..., k, None, :], out=term)
        acc += term
    return acc

def turned(x, flag):
    return np.swapaxes(x, -1, -2) if flag else x

def turned_dims(dims, flag):
    return dims[:-2] + (dims[-1], dims[-2]) if flag else dims

def matmul_shape(t, w):
    need(len(t) == 2 and len(w) == 2 and max(w) <= 1 and t[0].dtype == t[1].dtype and min(len(x.dims) for x in t) >= 2)
    a, b = turned_dims(t[0].dims, w[0]), turned_dims(t[1].dims, w[1])
    need(a[-1] == b[-2])
    return [Type(t[0].dtype, broadcast(a[:-2], b[:-2]) + (a[-2], b[-1]))]

op(8, "matmul", F | {I32}, matmul_shape)(lambda c: product(turned(c.ins[0], c.words[0]), turned(c.ins[1], c.words[1])))

def dense_shape(t, w):
    need(len(t) in (2, 3) and len(w) == 1 and w[0] <= 1 and t[0].dims and len(t[1].dims) == 2)
    k, n = turned_dims(t[1].dims, w[0])
    need(all(x.dtype == t[0].dtype for x in t) and t[0].dims[-1] == k and (len(t) == 2 or t[2].dims == (n,)))
    return [Type(t[0].dtype, t[0].dims[:-1] + (n,))]

@op(9, "dense", F, dense_shape)
def dense(c):
    x = c.ins[0].reshape(prod(c.ins[0].shape[:-1]), c.ins[0].shape[-1])
    y = product(x, turned(c.ins[1], c.words[0])).reshape(c.outs[0].dims)
    return y + c.ins[2] if len(c.ins) == 3 else y
