"""Steps of optimizers."""

from functools import partial

import numpy as np

from artifact import Type
from base import F32, I64
from ops.products import product
from ops.registry import F, IN0, IN_EACH, need, op
from reals import number, pow_scalar

def gradient_shape(t, products):
    """The type of the gradient: of the input itself, or of the product of x and dy."""
    if not products:
        return t[0]
    need(len(t[0].dims) == 2 and len(t[1].dims) == 2 and t[0].dtype == t[1].dtype and t[0].dims[0] == t[1].dims[0])
    return Type(t[0].dtype, (t[0].dims[1], t[1].dims[1]))

def sgd_shape(t, w, products):
    need(len(t) == 3 + products and not w)
    need(t[0] == gradient_shape(t[1:], products) and t[-1] == Type(t[0].dtype, ()))
    return t[:1]

def adam_shape(t, w, products):
    need(len(t) == 6 + products and len(w) == 5 and t[0] == t[1] == t[2] == gradient_shape(t[3:], products))
    need(t[-2] == Type(t[0].dtype, ()) and t[-1] == Type(I64, ()))
    b1, b2, epsilon, r1, r2 = map(number, w)
    need(0 <= b1 < 1 and 0 <= b2 < 1 and 0 <= epsilon < np.inf and 0 <= r1 <= 1 and 0 <= r2 <= 1)
    return t[:3]

def adam(variable, m, v, g, rate, iterations, w):
    b1, b2, epsilon, r1, r2 = map(number, w)
    t = int(iterations) + 1
    t = np.float32(t if 0 <= t < 2**32 else 2**32 - 1)
    alpha = rate * (np.sqrt(1 - pow_scalar(b2, t)) / (1 - pow_scalar(b1, t)))
    m = m + (g - m) * r1
    v = v + (g * g - v) * r2
    return [variable - (m * alpha) / (np.sqrt(v) + epsilon), m, v]

op(27, "sgd_step", F, partial(sgd_shape, products=0), IN0)(lambda c: c.ins[0] - c.ins[2] * c.ins[1])
op(30, "matmul_sgd", F, partial(sgd_shape, products=1), IN0)(lambda c: c.ins[0] - c.ins[3] * product(c.ins[1].T, c.ins[2]))
op(28, "adam_step", {F32}, partial(adam_shape, products=0), IN_EACH)(lambda c: adam(*c.ins, c.words))
op(111, "matmul_adam", {F32}, partial(adam_shape, products=1), IN_EACH)(
    lambda c: adam(*c.ins[:3], product(c.ins[3].T, c.ins[4]), *c.ins[5:], c.words))
