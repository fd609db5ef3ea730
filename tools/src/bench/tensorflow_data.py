"""TensorFlow's version of std-host/examples/bench_data.rs. It answers the same requests, one per line: `NAME ROUNDS`.

Some figures have several implementations. The first request for a figure finds the fastest one, which is then measured.
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
    """Reads the records in batches, because a Python step for each record would take most of the time."""
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


EXAMPLES = 200_000


def examples(batch_first):
    """Measures Examples per second: shuffled, batched by 128, parsed and decoded on all cores."""
    features = {"image": tf.io.FixedLenFeature([], tf.string), "label": tf.io.FixedLenFeature([], tf.int64)}

    def parse(records):
        parsed = (tf.io.parse_example if batch_first else tf.io.parse_single_example)(records, features)
        return tf.io.decode_raw(parsed["image"], tf.uint8), parsed["label"]

    dataset = tf.data.TFRecordDataset(os.path.join(FOLDER, "examples-784.tfrecord")).shuffle(10_000)
    if batch_first:
        dataset = dataset.batch(128).map(parse, num_parallel_calls=tf.data.AUTOTUNE)
    else:
        dataset = dataset.map(parse, num_parallel_calls=tf.data.AUTOTUNE).batch(128)
    count, start = 0, time.perf_counter()
    for images, _ in dataset.prefetch(tf.data.AUTOTUNE):
        count += images.shape[0]
    assert count == EXAMPLES, count
    return count / (time.perf_counter() - start)


FILES, BATCH = 512, 32


def pictures():
    """Returns a dataset of JPEG files: decoded, resized to 256x256 and batched by 32."""
    paths = [os.path.join(FOLDER, "jpeg", f"{file:04}.jpg") for file in range(FILES)]

    def load(path, label):
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [256, 256]) * (1.0 / 255.0), label

    dataset = tf.data.Dataset.from_tensor_slices((paths, [file % 2 for file in range(FILES)]))
    return dataset.map(load, num_parallel_calls=tf.data.AUTOTUNE).batch(BATCH).prefetch(tf.data.AUTOTUNE)


def images_per_s():
    dataset, count, start = pictures(), 0, time.perf_counter()
    for images, _ in dataset:
        count += images.shape[0]
    assert count == FILES, count
    return count / (time.perf_counter() - start)


def epoch_images_per_s():
    """Measures an epoch of the CNN of std-host/examples/bench_data/jpeg.rs."""
    layers = tf.keras.layers
    stack = [
        layers.Input([256, 256, 3]),
        layers.Conv2D(16, 3, strides=4, activation="relu"),
        layers.MaxPool2D(2),
        layers.Conv2D(32, 3, activation="relu"),
        layers.GlobalAveragePooling2D(),
        layers.Dense(2),
    ]
    model, dataset = tf.keras.Sequential(stack), pictures()
    model.compile("adam", tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    model.fit(dataset.take(4), verbose=0)
    start = time.perf_counter()
    model.fit(dataset, verbose=0)
    return FILES / (time.perf_counter() - start)


WAYS = {
    "tfrecord_read_MBps": [lambda b=b, n=n: read_records(b, n) for b in [None, 1 << 20, 8 << 20] for n in [16, 128]],
    "tfrecord_write_MBps": [write_records],
    "examples_per_s": [lambda first=first: examples(first) for first in [True, False]],
    "jpeg_images_per_s": [images_per_s],
    "jpeg_epoch_images_per_s": [epoch_images_per_s],
}


def fastest(ways):
    for way in ways:
        way()
    if len(ways) == 1:
        return ways[0]
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
