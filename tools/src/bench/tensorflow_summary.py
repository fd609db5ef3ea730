"""TensorFlow's version of std-host/examples/bench_summary.rs. It answers the same requests, one per line: `NAME COUNT`."""

import os
import shutil
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

FOLDER = os.path.join(sys.argv[1], "tensorflow")


def scalars(count):
    """Returns the time of `count` calls, in milliseconds."""
    shutil.rmtree(FOLDER, ignore_errors=True)
    writer = tf.summary.create_file_writer(FOLDER)
    with writer.as_default():
        start = time.perf_counter()
        for step in range(count):
            tf.summary.scalar("loss", 0.5, step=step)
        passed = time.perf_counter() - start
    writer.close()
    return passed * 1e3


def arrived(_):
    """Returns the number of scalars in the file."""
    (name,) = os.listdir(FOLDER)
    records = tf.data.TFRecordDataset(os.path.join(FOLDER, name))
    # The first record holds the file version.
    return int(records.reduce(0, lambda count, _: count + 1)) - 1


print("ready", flush=True)
for line in sys.stdin:
    name, count = line.split()
    print({"scalar_ms": scalars, "arrived": arrived}[name](int(count)), flush=True)
