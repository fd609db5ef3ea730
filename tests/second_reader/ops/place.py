"""Ops that move elements, and their gradients."""

from math import prod

import numpy as np

from artifact import Type
from base import I32, I64, signed
from ops.registry import A, IN0, N, broadcast, data_error, need, op

def reshape_shape(t, w):
    need(len(t) == 1 and len(w) <= 8 and prod(w) == prod(t[0].dims) and prod(d for d in w if d) < 2**32)
    return [Type(t[0].dtype, tuple(w))]

def broadcast_to_shape(t, w):
    need(len(t) == 1 and len(w) <= 8 and broadcast(t[0].dims, tuple(w)) == tuple(w))
    return [Type(t[0].dtype, tuple(w))]

def transpose_shape(t, w):
    need(len(t) == 1 and sorted(w) == list(range(len(t[0].dims))))
    return [Type(t[0].dtype, tuple(t[0].dims[k] for k in w))]

def concat_shape(t, w):
    need(1 <= len(t) <= 8 and len(w) == 1 and w[0] < len(t[0].dims))
    rest = lambda x: (x.dtype, len(x.dims), x.dims[:w[0]], x.dims[w[0] + 1:])
    need(all(rest(x) == rest(t[0]) for x in t))
    return [Type(t[0].dtype, t[0].dims[:w[0]] + (sum(x.dims[w[0]] for x in t),) + t[0].dims[w[0] + 1:])]

def check_slice(w, inner, outer):
    """Checks that the elements of `inner` have places in `outer`, at begin, begin + step, …"""
    for begin, step, n, size in zip(w[0::3], map(signed, w[1::3]), inner, outer):
        need(step != 0 and (n == 0 or (begin < size and 0 <= begin + (n - 1) * step < size)))

def places(w, dims):
    return np.ix_(*[begin + np.arange(n) * signed(step) for begin, step, n in zip(w[0::3], w[1::3], dims)])

def strided_slice_shape(t, w):
    need(len(t) == 1 and len(w) == 3 * len(t[0].dims))
    check_slice(w, w[2::3], t[0].dims)
    return [Type(t[0].dtype, tuple(w[2::3]))]

def pad_shape(t, w):
    need(len(t) == 2 and t[1] == Type(t[0].dtype, ()) and len(w) == 3 * len(t[0].dims))
    check_slice(w, t[0].dims, w[2::3])
    return [Type(t[0].dtype, tuple(w[2::3]))]

op(24, "reshape", A, reshape_shape, IN0)(lambda c: c.ins[0].reshape(c.words).copy())
op(25, "transpose", A, transpose_shape)(lambda c: c.ins[0].transpose(c.words))
op(26, "broadcast_to", A, broadcast_to_shape)(lambda c: np.broadcast_to(c.ins[0], c.words))
op(80, "concat", A, concat_shape)(lambda c: np.concatenate(c.ins, axis=c.words[0]))
op(81, "strided_slice", A, strided_slice_shape)(lambda c: c.ins[0][places(c.words, c.outs[0].dims)])

@op(82, "pad", A, pad_shape)
def pad(c):
    y = np.full(c.outs[0].dims, c.ins[1])
    y[places(c.words, c.ins[0].shape)] = c.ins[0]
    return y

def gather_shape(t, w):
    need(len(t) == 2 and len(w) == 3 and t[1].dtype in (I32, I64) and w[2] <= 1)
    (x, indices), (axis, batch, _) = (t[0].dims, t[1].dims), w
    need(batch <= axis < len(x) and batch <= len(indices) and x[:batch] == indices[:batch])
    return [Type(t[0].dtype, x[:axis] + indices[batch:] + x[axis + 1:])]

@op(83, "gather", A, gather_shape)
def gather(c):
    (x, index), (axis, batch, zeros) = c.ins, c.words
    n, b = x.shape[axis], prod(x.shape[:batch])
    data_error(7, "index out of range", (index >= n) | ((index < 0) & (zeros == 0)))
    x = x.reshape(b, prod(x.shape[batch:axis]), n, prod(x.shape[axis + 1:]))
    flat = index.reshape(b, prod(index.shape[batch:]))
    x = np.concatenate([x, np.zeros_like(x, shape=(b, x.shape[1], 1, x.shape[3]))], axis=2)  # the row for negative indices
    y = x[np.arange(b)[:, None], :, np.where(flat < 0, n, flat)]
    return y.transpose(0, 2, 1, 3).reshape(c.outs[0].dims)

def gather_grad_shape(t, w):
    need(len(t) == 2 and len(w) == 3 and t[1].dtype in (I32, I64))
    (dy, indices), (axis, batch, n) = (t[0].dims, t[1].dims), w
    after = axis + len(indices) - batch
    need(batch <= axis and batch <= len(indices) and after <= len(dy))
    need(dy[:batch] == indices[:batch] and dy[axis:after] == indices[batch:])
    return [Type(t[0].dtype, dy[:axis] + (n,) + dy[after:])]

@op(84, "gather_grad", N, gather_grad_shape)
def gather_grad(c):
    (dy, index), (axis, batch, n), out = c.ins, c.words, c.outs[0].dims
    data_error(7, "index out of range", index >= n)
    b = prod(out[:batch])
    flat = index.reshape(b, prod(index.shape[batch:]))
    dx = np.zeros((b, prod(out[batch:axis]), n, prod(out[axis + 1:])), dy.dtype)
    dy = dy.reshape(b, dx.shape[1], flat.shape[1], dx.shape[3])
    for i in range(flat.shape[1]):
        rows = np.flatnonzero(flat[:, i] >= 0)
        dx[rows, :, flat[rows, i]] += dy[rows, :, i]
    return dx.reshape(out)

def scatter_update_shape(t, w):
    need(len(t) == 3 and not w and t[2].dtype in (I32, I64) and t[2].dims and t[2].dims[-1] <= len(t[0].dims))
    need(t[1] == Type(t[0].dtype, t[2].dims[:-1] + t[0].dims[t[2].dims[-1]:]))
    return t[:1]

@op(87, "tensor_scatter_update", A, scatter_update_shape, IN0)
def tensor_scatter_update(c):
    x, updates, index = c.ins
    d = index.shape[-1]
    data_error(7, "index out of range", (index < 0) | (index >= np.array(x.shape[:d], np.int64)))
    y = x.copy()
    for place in np.ndindex(index.shape[:-1]):
        y[tuple(index[place])] = updates[place]
    return y
