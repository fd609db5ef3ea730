"""JAX's version of std-host/examples/bench_cuda.rs: jax.jit."""

import argparse
import os
import sys

import measure

# The programs share the memory of the GPU.
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
parser = argparse.ArgumentParser()
parser.add_argument("--device", choices=["cuda", "cpu"], default="cuda")
DEVICE = parser.parse_args().device
os.environ["JAX_PLATFORMS"] = DEVICE

try:
    import jax
    import numpy as np
    from jax import lax
    from jax import numpy as jnp
except ImportError:
    sys.exit(print("not installed"))

CLASSES = 10
DTYPES = {"f32": jnp.float32, "tf32": jnp.float32, "bf16": jnp.bfloat16, "f16": jnp.float16}
PRECISIONS = {"f32": "highest", "tf32": "tensorfloat32"}
wait = jax.block_until_ready


def random(*dims):
    return jnp.asarray(np.random.default_rng(1).random(dims, np.float32) * 2 - 1)


def normalize(x, axes, scale, offset):
    mean = x.mean(axes, keepdims=True)
    variance = jnp.square(x - mean).mean(axes, keepdims=True)
    return (x - mean) * (scale * lax.rsqrt(variance + 1e-3)) + offset, mean, variance


def pooled(x, size, initial, function):
    return lax.reduce_window(x, initial, function, (1, size, size, 1), (1, size, size, 1), "VALID")


KERNELS = {
    "copy": lambda x: jnp.copy(x),
    "chain": lambda x: -jnp.sqrt(jax.nn.relu(x * 1.5 + 0.5)),
    "sum_all": lambda x: x.sum(),
    "sum_rows": lambda x: x.sum(1),
    "sum_columns": lambda x: x.sum(0),
    "softmax": lambda x: jax.nn.softmax(x),
    "layer_norm": lambda x, scale, offset: normalize(x, -1, scale, offset)[0],
    "batch_norm": lambda x, scale, offset: normalize(x, (0, 1, 2), scale, offset)[0],
    "max_pool": lambda x: pooled(x, 2, -jnp.inf, lax.max),
}


class Parameters:
    """The variables of a model, in the order of their use. A model without values creates them."""

    def __init__(self, values, moving, dtype, training):
        self.values, self.moving, self.dtype, self.training = values, moving, dtype, training
        self.is_new, self.used, self.moved = values is None, 0, []
        if self.is_new:
            self.values, self.moving = [], []

    def weight(self, *shape, value=None):
        """Returns the next variable in the compute dtype. `value` is its first value; otherwise it is random."""
        if self.is_new:
            spread = (2 / np.prod(shape[:-1])) ** 0.5
            self.values.append(random(*shape) * spread if value is None else jnp.full(shape, value, jnp.float32))
        self.used += 1
        return self.values[self.used - 1].astype(self.dtype)

    def dense(self, x, units):
        return x @ self.weight(x.shape[-1], units) + self.weight(units, value=0.0)

    def conv(self, x, filters, size, stride=1, groups=1, bias=True):
        kernel = self.weight(size, size, x.shape[-1] // groups, filters)
        layout = ("NHWC", "HWIO", "NHWC")
        y = lax.conv_general_dilated(x, kernel, (stride, stride), "SAME", dimension_numbers=layout, feature_group_count=groups)
        return y + self.weight(filters, value=0.0) if bias else y

    def batch_norm(self, x):
        channels, dtype = x.shape[-1], x.dtype
        scale, offset = self.weight(channels, value=1.0), self.weight(channels, value=0.0)
        if self.is_new:
            self.moving.append((jnp.zeros(channels), jnp.ones(channels)))
        mean, variance = self.moving[len(self.moved)]
        if self.training:
            y, *now = normalize(x.astype(jnp.float32), (0, 1, 2), scale, offset)
            mean, variance = (0.99 * old + 0.01 * new.ravel() for old, new in zip((mean, variance), now))
        else:
            y = (x - mean) * (scale * lax.rsqrt(variance + 1e-3)) + offset
        self.moved.append((mean, variance))
        return y.astype(dtype)

    def layer_norm(self, x):
        scale, offset = self.weight(x.shape[-1], value=1.0), self.weight(x.shape[-1], value=0.0)
        return normalize(x.astype(jnp.float32), -1, scale, offset)[0].astype(x.dtype)


def cnn(p, x, filters, units):
    for count in (filters, 2 * filters):
        x = pooled(jax.nn.relu(p.conv(x, count, 5)), 2, -jnp.inf, lax.max)
    return p.dense(jax.nn.relu(p.dense(x.reshape(len(x), -1), units)), CLASSES)


def resnet8(p, x, side, percent, classes):
    x = jax.nn.relu(p.batch_norm(p.conv(x, 16 * percent // 100, 3)))
    for filters, stride in ((16, 1), (32, 2), (64, 2)):
        filters = filters * percent // 100
        y = jax.nn.relu(p.batch_norm(p.conv(x, filters, 3, stride)))
        y = p.batch_norm(p.conv(y, filters, 3))
        x = jax.nn.relu(y + (p.conv(x, filters, 1, stride) if stride > 1 else x))
    return p.dense(x.mean((1, 2)), classes)


BLOCKS = [(1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1)]


def divisible(width):
    rounded = max(8, int(width + 4) // 8 * 8)
    return rounded + 8 if rounded < 0.9 * width else rounded


def mobilenet_v2(p, x, side, percent, classes):
    def normalized(x, filters, size, stride=1, groups=1):
        return p.batch_norm(p.conv(x, filters, size, stride, groups, bias=False))

    x = jax.nn.relu6(normalized(x, divisible(32 * percent / 100), 3, 2))
    for expansion, filters, count, stride in BLOCKS:
        filters = divisible(filters * percent / 100)
        for index in range(count):
            wide, step = x.shape[-1] * expansion, stride if index == 0 else 1
            y = jax.nn.relu6(normalized(x, wide, 1)) if expansion > 1 else x
            y = normalized(jax.nn.relu6(normalized(y, wide, 3, step, wide)), filters, 1)
            x = x + y if step == 1 and x.shape[-1] == filters else y
    last = max(1280, divisible(1280 * percent / 100)) if percent > 100 else 1280
    return p.dense(jax.nn.relu6(normalized(x, last, 1)).mean((1, 2)), classes)


def lstm(p, x, steps, features, units):
    kernel, recurrent, bias = p.weight(features, 4 * units), p.weight(units, 4 * units), p.weight(4 * units, value=0.0)

    def cell(state, x):
        hidden, carried = state
        i, f, g, o = jnp.split(x + hidden @ recurrent, 4, -1)
        carried = jax.nn.sigmoid(f) * carried + jax.nn.sigmoid(i) * jnp.tanh(g)
        hidden = jax.nn.sigmoid(o) * jnp.tanh(carried)
        return (hidden, carried), None

    zeros = jnp.zeros((len(x), units), x.dtype)
    (hidden, _), _ = lax.scan(cell, (zeros, zeros), jnp.swapaxes(x @ kernel + bias, 0, 1))
    return p.dense(hidden, CLASSES)


def transformer(p, x, positions, width, heads):
    def attend(x):
        query, key, value = (p.dense(x, width).reshape(len(x), positions, heads, width // heads) for _ in range(3))
        return p.dense(jax.nn.dot_product_attention(query, key, value).reshape(x.shape), width)

    x = x + attend(p.layer_norm(x))
    x = x + p.dense(jax.nn.relu(p.dense(p.layer_norm(x), 4 * width)), width)
    return p.dense(x.mean(1), CLASSES)


def mlp(p, x, features, units):
    return p.dense(jax.nn.relu(p.dense(x, units)), CLASSES)


# The models, each with the dimensions of a sample, and the number of classes.
MODELS = {
    "cnn": (cnn, lambda sizes: (28, 28, 1), lambda sizes: CLASSES),
    "resnet8": (resnet8, lambda sizes: (sizes[0], sizes[0], 3), lambda sizes: sizes[2]),
    "mobilenet_v2": (mobilenet_v2, lambda sizes: (sizes[0], sizes[0], 3), lambda sizes: sizes[2]),
    "lstm": (lstm, lambda sizes: sizes[:2], lambda sizes: CLASSES),
    "transformer": (transformer, lambda sizes: sizes[:2], lambda sizes: CLASSES),
    "batch_to_loss": (mlp, lambda sizes: sizes[:1], lambda sizes: CLASSES),
}


def adam(state, gradients):
    """Returns the state after a step: variables, means, mean squares, and the number of steps."""
    values, means, squares, steps = state
    steps = steps + 1
    means = [0.9 * mean + 0.1 * gradient for mean, gradient in zip(means, gradients)]
    squares = [0.999 * square + 0.001 * gradient * gradient for square, gradient in zip(squares, gradients)]
    rate = 1e-3 * jnp.sqrt(1 - 0.999**steps) / (1 - 0.9**steps)
    values = [value - rate * mean / (jnp.sqrt(square) + 1e-7) for value, mean, square in zip(values, means, squares)]
    return values, means, squares, steps


def untrained(values):
    zeros = [jnp.zeros_like(value) for value in values]
    return list(values), zeros, [jnp.zeros_like(value) for value in values], jnp.zeros((), jnp.float32)


def update(variables, rows, columns):
    """Returns an update of all variables by Adam."""
    gradients = [random(rows, columns) for _ in range(variables)]
    state, step = untrained([random(rows, columns) + 0.0 for _ in range(variables)]), jax.jit(adam, donate_argnums=0)

    def call():
        nonlocal state
        state = step(state, gradients)
        return state

    return call


def training(model, sizes, dtype, x):
    """Returns a training step, a function of a batch."""
    new = Parameters(None, None, jnp.float32, True)
    model(new, x, *sizes)
    state, moving = untrained(new.values), new.moving

    def loss_of(values, moving, x, y):
        p = Parameters(values, moving, dtype, True)
        logits = model(p, x.astype(dtype), *sizes).astype(jnp.float32)
        return -jnp.take_along_axis(jax.nn.log_softmax(logits), y[:, None], 1).mean(), p.moved

    def step(state, moving, x, y):
        (loss, moving), gradients = jax.value_and_grad(loss_of, has_aux=True)(state[0], moving, x, y)
        return adam(state, gradients), moving, loss

    step = jax.jit(step, donate_argnums=(0, 1))

    def call(x, y):
        nonlocal state, moving
        state, moving, loss = step(state, moving, x, y)
        return loss, state

    return call


def inference(model, sizes, x):
    new = Parameters(None, None, jnp.float32, True)
    model(new, x, *sizes)
    infer = jax.jit(lambda values, moving, x: model(Parameters(values, moving, jnp.float32, False), x, *sizes))
    x = np.asarray(x)
    return lambda: np.asarray(infer(new.values, new.moving, x))


def model_step(work, precision, batch, sizes):
    name = work.removesuffix("_infer")
    if name not in MODELS:
        return None
    model, dims, classes = MODELS[name]
    x = random(batch, *dims(sizes))
    if name != work:
        return measure.once(inference(model, sizes, x), wait)
    y, step = jnp.arange(batch) % classes(sizes), training(model, sizes, DTYPES[precision], x)
    if work != "batch_to_loss":
        return measure.once(lambda: step(x, y), wait)
    x, y = np.asarray(x), np.asarray(y)
    return measure.once(lambda: float(step(x, y)[0]), wait)


def make(work, precision, sizes):
    jax.clear_caches()
    jax.config.update("jax_default_matmul_precision", PRECISIONS.get(precision, "default"))
    if work == "gemm":
        a, b = (random(*sizes, *sizes).astype(DTYPES[precision]) for _ in range(2))
        product = jax.jit(jnp.matmul)
        return measure.repeated(lambda: product(a, b), wait)
    if work in KERNELS:
        inputs = [random(*sizes)] + [random(sizes[-1])] * (2 if work.endswith("_norm") else 0)
        kernel = jax.jit(KERNELS[work])
        return measure.repeated(lambda: kernel(*inputs), wait)
    if work == "adam":
        return measure.repeated(update(*sizes), wait)
    return model_step(work, precision, sizes[0], sizes[1:])


def main():
    try:
        device = jax.devices()[0]
    except (AssertionError, RuntimeError):
        sys.exit(print("no GPU"))
    measure.serve(f"JAX {jax.__version__} on {device.device_kind}", make)


main()
