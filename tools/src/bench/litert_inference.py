"""TensorFlow Lite's version of std-host/examples/bench_inference.rs. It answers the same requests, one per line: `MODEL COUNT`."""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf

MODELS = {}


def load(name):
    """Returns an interpreter with XNNPACK, on one thread, whose inputs are set."""
    model = tf.lite.Interpreter(os.path.join(sys.argv[1], name), num_threads=1)
    model.allocate_tensors()
    for given in model.get_input_details():
        numbers = np.arange(np.prod(given["shape"], dtype=int), dtype=np.uint64) * np.uint64(2654435761) >> np.uint64(13)
        numbers = numbers.astype(np.uint8)
        if given["dtype"] == np.float32:
            numbers = numbers.astype(np.float32) / 255
        elif given["dtype"] != np.uint8:
            numbers = numbers.view(np.int8).astype(given["dtype"])
        model.set_tensor(given["index"], numbers.reshape(given["shape"]))
    return model


def median(name, count):
    """Returns the median of the times of `count` calls, in microseconds."""
    if name not in MODELS:
        MODELS[name] = load(name)
    times = []
    for _ in range(count):
        start = time.perf_counter()
        MODELS[name].invoke()
        times.append(time.perf_counter() - start)
    return sorted(times)[count // 2] * 1e6


print("ready", flush=True)
for line in sys.stdin:
    name, count = line.rsplit(" ", 1)
    try:
        print(f"{median(name, int(count)):.2f}", flush=True)
    except (RuntimeError, ValueError) as error:
        print("failed", str(error).replace("\n", " "), flush=True)
