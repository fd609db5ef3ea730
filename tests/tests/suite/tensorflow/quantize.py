"""Quantizes small Keras models with TensorFlow Lite's converter, each from the float model and the samples that are written beside it.

Argument: the folder for the models, `NAME_float32.tflite` and `NAME_int8.tflite`, and the samples of each input, `NAME_INPUT.npy`.
"""

import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

(folder,) = sys.argv[1:]
SAMPLES = 16


def dense():
    x = keras.Input(batch_shape=(1, 12))
    y = L.Dense(16, "relu")(x)
    y = L.Dense(10, "tanh")(y)
    y = L.Dense(7, "sigmoid", use_bias=False)(y)
    return keras.Model(x, L.Softmax()(L.Dense(5)(y)))


def functions():
    x = keras.Input(batch_shape=(1, 16))
    y = L.Dense(12, "gelu")(x)
    y = L.Dense(12, "elu")(y)
    return keras.Model(x, L.Dense(4, "relu6")(y))


def convolutions():
    x = keras.Input(batch_shape=(1, 9, 8, 3))
    y = L.Conv2D(6, 3, strides=2, padding="same", activation="relu")(x)
    y = L.DepthwiseConv2D((3, 2), padding="same", activation="relu6")(y)
    y = L.Conv2D(4, (2, 3), padding="valid")(y)
    y = L.ZeroPadding2D(((1, 0), (2, 1)))(y)
    y = L.DepthwiseConv2D(3, strides=2, depth_multiplier=2, padding="same")(y)
    return keras.Model(x, L.Dense(3)(L.Flatten()(y)))


def dilated():
    x = keras.Input(batch_shape=(1, 11, 9, 2))
    y = L.Conv2D(4, 3, dilation_rate=2, padding="same")(x)
    return keras.Model(x, L.Conv2D(3, 3, strides=(1, 2), padding="valid")(L.ReLU()(y)))


def normalized():
    def normalization():
        return L.BatchNormalization(
            gamma_initializer=keras.initializers.RandomUniform(0.5, 1.5),
            beta_initializer=keras.initializers.RandomUniform(-0.5, 0.5),
            moving_mean_initializer=keras.initializers.RandomUniform(-0.5, 0.5),
            moving_variance_initializer=keras.initializers.RandomUniform(0.5, 1.5),
        )

    x = keras.Input(batch_shape=(1, 8, 8, 3))
    y = L.ReLU(6.0)(normalization()(L.Conv2D(8, 3, padding="same", use_bias=False)(x)))
    y = L.ReLU()(normalization()(L.DepthwiseConv2D(3, strides=2, padding="same", use_bias=False)(y)))
    y = L.ReLU()(normalization()(L.Conv2D(8, 1)(y)))
    return keras.Model(x, L.Dense(4, activation="softmax")(L.GlobalAveragePooling2D()(y)))


def pools():
    x = keras.Input(batch_shape=(1, 8, 8, 4))
    y = L.MaxPooling2D(2)(L.Conv2D(6, 3, padding="same", activation="relu")(x))
    y = L.AveragePooling2D(2)(L.Conv2D(5, 3, padding="same", activation="relu")(y))
    return keras.Model(x, L.Dense(3)(L.Flatten()(y)))


def sequence():
    x = keras.Input(batch_shape=(1, 20, 3))
    y = L.MaxPooling1D(2)(L.Conv1D(6, 3, activation="relu")(x))
    y = L.GlobalAveragePooling1D()(L.Conv1D(8, 3, padding="same", activation="relu")(y))
    return keras.Model(x, L.Dense(2, activation="sigmoid")(y))


def residual():
    x = keras.Input(batch_shape=(1, 6, 6, 4))
    y = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    z = L.ReLU()(L.Add()([x, L.Conv2D(4, 3, padding="same")(y)]))
    return keras.Model(x, L.Dense(3)(L.Flatten()(z)))


def branches():
    x, z = keras.Input(batch_shape=(1, 6)), keras.Input(batch_shape=(1, 6))
    both = L.Concatenate()([L.Dense(4, "tanh")(x), L.Dense(4, "tanh")(z)])
    gate = L.Dense(8, "sigmoid")(both)
    return keras.Model([x, z], [L.Multiply()([both, gate]), L.Dense(3)(both)])


def attention():
    x = keras.Input(batch_shape=(1, 6, 8))
    y = L.LayerNormalization()(L.MultiHeadAttention(2, 4)(x, x))
    return keras.Model(x, L.Dense(3)(L.Flatten()(y)))


def recurrent():
    x = keras.Input(batch_shape=(1, 4, 3))
    return keras.Model(x, L.Dense(2)(L.LSTM(6, unroll=True)(x)))


MODELS = [dense, functions, convolutions, dilated, normalized, pools, sequence, residual, branches, attention, recurrent]


def converted(model, samples=None):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    if samples is not None:
        converter.optimizations = [tf.lite.Optimize.DEFAULT]
        converter.representative_dataset = lambda: iter(samples)
        converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
        converter.inference_input_type = converter.inference_output_type = tf.int8
    return converter.convert()


def main():
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(5)
    for build in MODELS:
        model = build()
        # Keras begins with biases of 0.
        for weights in model.weights:
            if weights.name == "bias":
                weights.assign(random.uniform(-0.5, 0.5, weights.shape))
        samples = [[random.normal(size=x.shape).astype(np.float32) for x in model.inputs] for _ in range(SAMPLES)]
        for kind, content in [("float32", converted(model)), ("int8", converted(model, samples))]:
            with open(f"{folder}/{build.__name__}_{kind}.tflite", "wb") as file:
                file.write(content)
        for at in range(len(model.inputs)):
            np.save(f"{folder}/{build.__name__}_{at}.npy", np.stack([sample[at] for sample in samples]))


main()
