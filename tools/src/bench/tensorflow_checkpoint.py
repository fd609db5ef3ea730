"""TensorFlow's version of std-host/examples/bench_checkpoint.rs. It answers the same requests, one per line: `NAME ROUNDS`."""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

PREFIX = os.path.join(sys.argv[1], "tensorflow")

values = [tf.Variable(tf.random.stateless_uniform([2048, 2048], [index, 0])) for index in range(64)]
checkpoint = tf.train.Checkpoint(values=values)


def save():
    checkpoint.write(PREFIX)


def restore():
    checkpoint.read(PREFIX).assert_consumed()


def median(rounds, work):
    times = []
    for _ in range(rounds):
        start = time.perf_counter()
        work()
        times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


save()
print("ready", flush=True)
for line in sys.stdin:
    name, rounds = line.split()
    print(median(int(rounds), {"save_ms": save, "restore_ms": restore}[name]), flush=True)
