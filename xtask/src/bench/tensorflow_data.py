"""The figures of std-host/examples/bench_data.rs for TensorFlow, answering the same requests: `NAME ROUNDS`, one a line.

Where there are several ways, the fastest one is measured: that is found out at the first request.
"""

import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import tensorflow as tf

FOLDER = sys.argv[1]
RECORD, RECORDS = 8 << 10, 65_536


def read_records(buffer_size, batch):
    """Batches only: a step of Python for each record would take most of the time."""
    options = tf.data.Options()
    options.threading.private_threadpool_size = 1
    options.autotune.enabled = False
    dataset = tf.data.TFRecordDataset(os.path.join(FOLDER, "records-8k.tfrecord"), buffer_size=buffer_size)
    count, start = 0, time.perf_counter()
    for records in dataset.batch(batch).with_options(options):
        count += records.shape[0]
    assert count == RECORDS, count
    return RECORD * RECORDS / (time.perf_counter() - start) / 1e6


def write_records():
    path = os.path.join(FOLDER, "written-by-tensorflow.tfrecord")
    data = os.urandom(RECORD)
    start = time.perf_counter()
    with tf.io.TFRecordWriter(path) as writer:
        for _ in range(RECORDS // 2):
            writer.write(data)
    rate = RECORD * (RECORDS // 2) / (time.perf_counter() - start) / 1e6
    os.remove(path)
    return rate


WAYS = {
    "tfrecord_read_MBps": [lambda b=b, n=n: read_records(b, n) for b in [None, 1 << 20, 8 << 20] for n in [16, 128]],
    "tfrecord_write_MBps": [write_records],
}


def fastest(ways):
    for way in ways:
        way()
    return max(ways, key=lambda way: max(way(), way()))


def main():
    print("ready", flush=True)
    best = {}
    for line in sys.stdin:
        name, rounds = line.split()
        if name not in best:
            best[name] = fastest(WAYS[name])
        figures = sorted(best[name]() for _ in range(max(1, int(rounds))))
        print(figures[len(figures) // 2], flush=True)


main()
