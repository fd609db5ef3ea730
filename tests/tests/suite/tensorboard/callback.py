"""Trains in Keras with its TensorBoard callback. Arguments: FOLDER, and the callback's settings as JSON. Also saves weights and data."""

import json
import os
import sys

import keras
import numpy as np

folder, settings = sys.argv[1], json.loads(sys.argv[2])
os.makedirs(folder)
keras.utils.set_random_seed(1)
model = keras.Sequential(
    [
        keras.Input((4, 4, 1)),
        keras.layers.Conv2D(2, 3, name="conv2d"),
        keras.layers.Flatten(),
        keras.layers.Dense(8, activation="relu", name="dense"),
        keras.layers.Dense(3, name="dense_1"),
    ],
    name="sequential",
)
loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(0.01), loss, metrics=["accuracy"])
x, y = np.random.rand(20, 4, 4, 1).astype("float32"), np.random.randint(0, 3, 20)
for name, array in [("x", x), ("y", y), *enumerate(model.get_weights())]:
    np.save(os.path.join(folder, f"{name}.npy"), array)
board = keras.callbacks.TensorBoard(folder, **settings)
model.fit(x, y, batch_size=5, epochs=3, shuffle=False, validation_data=(x[:10], y[:10]), callbacks=[board], verbose=0)
