"""TensorFlow's version of std-host/examples/bench_train.rs. It answers the same requests, one per line: `NAME STEPS`."""

import gzip
import os
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "-1")

import numpy as np
import tensorflow as tf
from tensorflow.keras import layers

WARM_UP = 5


def read(path):
    """Returns the array in a gzip-compressed IDX file of bytes."""
    raw = gzip.open(path).read()
    end = 4 + 4 * raw[3]
    return np.frombuffer(raw[end:], np.uint8).reshape(np.frombuffer(raw[4:end], ">u4"))


def mlp():
    return [784], tf.keras.Sequential([layers.Input([784]), layers.Dense(100, activation="relu"), layers.Dense(10)])


def cnn():
    def conv(filters):
        return layers.Conv2D(filters, 5, padding="same", activation="relu")

    rest = [layers.Flatten(), layers.Dense(1024, activation="relu"), layers.Dense(10)]
    stack = [conv(32), layers.MaxPool2D(2), conv(64), layers.MaxPool2D(2)] + rest
    return [28, 28, 1], tf.keras.Sequential([layers.Input([28, 28, 1])] + stack)


def lstm():
    return [28, 28], tf.keras.Sequential([layers.Input([28, 28]), layers.LSTM(64), layers.Dense(10)])


def gru():
    stack = [layers.GRU(64, return_sequences=True), layers.GRU(64), layers.Dense(10)]
    return [28, 28], tf.keras.Sequential([layers.Input([28, 28])] + stack)


def mobilenet(side, alpha, classes):
    arguments = dict(alpha=alpha, weights=None, classes=classes, classifier_activation=None)
    return [side, side, 3], tf.keras.applications.MobileNetV2(input_shape=(side, side, 3), **arguments)


MODELS = {
    "mlp": (mlp, 50),
    "cnn": (cnn, 50),
    "lstm": (lstm, 32),
    "gru": (gru, 32),
    "mobilenet": (lambda: mobilenet(96, 0.35, 10), 16),
    "mobilenet_infer": (lambda: mobilenet(224, 1.0, 1000), 1),
}


def batches_of(images, labels, picture, batch):
    """Returns batches of pictures. The digits are too small for pictures with colors, for which the values do not matter."""
    if picture[-1] == 3:
        random = np.random.default_rng(1).random([batch] + picture, np.float32)
        return [(tf.constant(random), tf.constant(labels[:batch]))]
    starts = range(0, min(len(labels), 20 * batch) - batch + 1, batch)
    return [(tf.constant(images[i : i + batch].reshape([batch] + picture)), tf.constant(labels[i : i + batch])) for i in starts]


def trainer(name, images, labels):
    """Returns a function that does one training step of a new model. Each step uses the next batch."""
    build, batch = MODELS["mobilenet_infer" if "infer" in name else name.split("_")[0]]
    picture, model = build()
    batches = batches_of(images, labels, picture, batch)
    if "infer" in name:
        infer = tf.function(lambda x: model(x, training=False))
        return lambda: infer(batches[0][0]).numpy()
    optimizer = tf.keras.optimizers.Adam(1e-3)
    loss_of = tf.keras.losses.SparseCategoricalCrossentropy(from_logits=True)

    def step(x, y):
        with tf.GradientTape() as tape:
            loss = loss_of(y, model(x, training=True))
        gradients = tape.gradient(loss, model.trainable_variables)
        optimizer.apply_gradients(zip(gradients, model.trainable_variables))
        return loss

    if name.endswith("graph_ms"):
        step = tf.function(step)
    done = 0

    def run():
        nonlocal done
        done += 1
        return float(step(*batches[done % len(batches)]))

    return run


def median(run, steps):
    """Returns the median time of a step, in milliseconds."""
    times = []
    for index in range(WARM_UP + steps):
        start = time.perf_counter()
        run()
        if index >= WARM_UP:
            times.append((time.perf_counter() - start) * 1e3)
    return sorted(times)[len(times) // 2]


def main():
    folder = sys.argv[1]
    images = read(folder + "/train-images-idx3-ubyte.gz").astype(np.float32) / 255
    labels = read(folder + "/train-labels-idx1-ubyte.gz").astype(np.int32)
    print("ready", flush=True)
    trainers = {}
    for line in sys.stdin:
        name, steps = line.split()
        if name not in trainers:
            trainers[name] = trainer(name, images, labels)
            trainers[name]()
        print(median(trainers[name], int(steps)), flush=True)


main()
