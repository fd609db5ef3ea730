"""Converts small Keras models to quantized models of TensorFlow Lite, and runs these on the reference kernels.

Argument: the folder for the models, their tensors and `cases.json`, which has the form of `tests/fixtures/models`.
"""

import json
import struct
import sys

import keras
import numpy as np
import tensorflow as tf
from keras import layers as L

(folder,) = sys.argv[1:]
RUNS = 4
TYPES = {"int8": "I8", "uint8": "U8", "int16": "I16", "int32": "I32", "int64": "I64", "float32": "F32", "bool": "BOOL"}


def dense():
    x = keras.Input(batch_shape=(1, 12))
    y = L.Dense(16, "relu")(x)
    y = L.Dense(10, "tanh")(y)
    y = L.Dense(7, "sigmoid", use_bias=False)(y)
    return keras.Model(x, L.Softmax()(L.Dense(5)(y)))


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


def pools():
    x = keras.Input(batch_shape=(1, 8, 8, 4))
    y = L.Conv2D(5, 1)(x)
    both = [L.MaxPooling2D(2)(y), L.AveragePooling2D(2)(y), L.AveragePooling2D(3, strides=2, padding="same")(y)]
    y = L.MaxPooling2D((3, 2), strides=1, padding="same")(L.Concatenate()(both))
    return keras.Model(x, [L.GlobalAveragePooling2D()(y), L.GlobalMaxPooling2D()(y)])


def residual():
    x = keras.Input(batch_shape=(1, 6, 6, 4))
    y = L.Conv2D(4, 3, padding="same", activation="relu")(x)
    z = L.Add()([x, L.Conv2D(4, 3, padding="same")(y)])
    z = L.ReLU()(L.Subtract()([z, L.Conv2D(4, 1)(x)]))
    z = L.Multiply()([z, L.Conv2D(4, 1, activation="sigmoid")(y)])
    return keras.Model(x, keras.ops.mean(z, axis=[1, 2]))


def joined():
    a, b = keras.Input(batch_shape=(1, 5, 3)), keras.Input(batch_shape=(1, 5, 3))
    wide = L.Concatenate(axis=1)([a * 3.0, L.Dense(3)(b), L.Dense(3, "tanh")(a)])
    y = L.Concatenate(axis=-1)([wide, L.Dense(2, "relu")(wide)])
    # Without a sum: the reference kernel of SUM computes something else.
    return keras.Model([a, b], [y, keras.ops.max(y, axis=-1)])


def functions():
    x = keras.Input(batch_shape=(1, 6, 7))
    y = L.Dense(8)(L.LeakyReLU(0.2)(x))
    y = L.Dense(8)(L.LeakyReLU(1.5)(y))
    y = L.Activation("sigmoid")(y) + L.Activation("tanh")(y)
    return keras.Model(x, [L.ReLU()(x), L.ReLU(6.0)(x * 4.0), y])


def swish():
    x = keras.Input(batch_shape=(1, 6, 7))
    return keras.Model(x, L.Activation("hard_swish")(L.Dense(8, "hard_swish")(x)))


def transposed():
    x = keras.Input(batch_shape=(1, 5, 4, 3))
    y = L.Conv2DTranspose(4, 3, strides=2, padding="same")(x)
    return keras.Model(x, L.Conv2DTranspose(2, (2, 3), strides=(1, 2), padding="valid", activation="relu")(y))


def moved():
    x = keras.Input(batch_shape=(1, 6, 4))
    y = L.Dense(6)(x)
    y = L.Permute((2, 1))(y)
    first, second = y[:, :3], y[:, 3:]
    y = L.Concatenate()([first, second])
    y = L.Reshape((4, 9))(y)
    return keras.Model(x, [y, L.Softmax()(y)])


def attention():
    x = keras.Input(batch_shape=(1, 7, 12))
    y = L.LayerNormalization()(x)
    z = L.Add()([x, L.MultiHeadAttention(2, 5)(y, y)])
    y = L.Dense(16, "gelu")(L.LayerNormalization()(z))
    return keras.Model(x, L.Add()([z, L.Dense(12)(y)]))


def transformer():
    """A block of a transformer, of a size for a microcontroller. `cargo xtask size` counts its instructions."""
    x = keras.Input(batch_shape=(1, 32, 16))
    start = L.Dense(32)(x)
    y = L.LayerNormalization()(start)
    z = L.Add()([start, L.MultiHeadAttention(2, 16)(y, y)])
    y = L.Dense(64, "gelu")(L.LayerNormalization()(z))
    z = L.Add()([z, L.Dense(32)(y)])
    return keras.Model(x, L.Dense(10, "softmax")(L.GlobalAveragePooling1D()(z)))


def slopes():
    x = keras.Input(batch_shape=(1, 6, 5, 3))
    alpha = keras.initializers.RandomUniform(-0.5, 1.5)
    y = L.PReLU(alpha, shared_axes=[1, 2])(L.Conv2D(6, 3, padding="same")(x))
    return keras.Model(x, L.PReLU(alpha)(L.DepthwiseConv2D(2)(y)))


def compared():
    x = keras.Input(batch_shape=(1, 6, 7))
    a, b, small = L.Dense(7)(x), L.Dense(7, "tanh")(x), L.Dense(7, "sigmoid")(x) * 0.2
    chosen = keras.ops.where(small <= small[:, :1], a, b)
    return keras.Model(x, [chosen, keras.ops.less(b, a), keras.ops.equal(b, b[:, :1]), keras.ops.greater_equal(a, 0.25)])


def roots():
    x = keras.Input(batch_shape=(1, 6, 7))
    y, p = L.Dense(7)(x), L.Dense(7, "sigmoid")(x)
    unit = L.Lambda(lambda y: tf.math.l2_normalize(y, axis=-1), output_shape=(6, 7))(y)
    return keras.Model(x, [keras.ops.sqrt(p), unit, keras.ops.square(y - p)])


def padded():
    x = keras.Input(batch_shape=(1, 6, 7))
    return keras.Model(x, keras.ops.pad(L.Dense(7)(x), ((0, 0), (2, 1), (1, 1)), constant_values=0.25))


def resized():
    x = keras.Input(batch_shape=(1, 4, 5, 3))
    y = L.Conv2D(3, 1)(x)

    def resize(size, **options):
        return L.Lambda(lambda x: tf.compat.v1.image.resize_bilinear(x, size, **options), output_shape=(*size, 3))(y)

    twice = L.UpSampling2D(2, interpolation="bilinear")(y)
    return keras.Model(x, [twice, resize((6, 3), half_pixel_centers=True), resize((7, 9), align_corners=True), resize((3, 11))])


def exponentials():
    x = keras.Input(batch_shape=(1, 6, 7))
    y, p, o = L.Dense(7)(x), L.Dense(7, "sigmoid")(x), keras.ops
    return keras.Model(x, [o.exp(y), o.log(p + 0.25), o.abs(y), o.rsqrt(p + 0.1), o.gelu(y, approximate=False), o.gelu(p)])


def products():
    a, b = keras.Input(batch_shape=(1, 2, 5, 6)), keras.Input(batch_shape=(1, 2, 5, 6))
    y, z, o = L.Dense(6)(a), L.Dense(6)(b), keras.ops
    turned = [o.transpose(m, (0, 1, 3, 2)) for m in (y, z)]
    return keras.Model([a, b], [o.matmul(y, turned[1]), o.matmul(turned[0], z), o.matmul(y[:, :1], turned[1]), o.matmul(y, turned[0] @ z)])


MODELS = [dense, convolutions, dilated, pools, residual, joined, functions, swish, transposed, moved, resized, exponentials, products]
# TensorFlow converts these to int8 only.
INT8_MODELS = [attention, slopes, compared, roots, padded]


def int16(converter):
    converter.target_spec.supported_ops = [tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int16


def int16_float(converter):
    converter.target_spec.supported_ops = [tf.lite.OpsSet.EXPERIMENTAL_TFLITE_BUILTINS_ACTIVATIONS_INT16_WEIGHTS_INT8]


def int16_bias32(converter):
    int16(converter)
    converter._experimental_full_integer_quantization_bias_type = tf.int32


def int8(converter):
    converter.target_spec.supported_ops = [tf.lite.OpsSet.TFLITE_BUILTINS_INT8]
    converter.inference_input_type = converter.inference_output_type = tf.int8


def uint8(converter):
    int8(converter)
    converter.inference_input_type = converter.inference_output_type = tf.uint8


def int8_whole(converter):
    int8(converter)
    converter._experimental_disable_per_channel = True


VARIANTS = [int16, int16_float, int16_bias32, int8, uint8, int8_whole]
INT8_VARIANTS = [int8, uint8]


def converted(model, variant, samples):
    converter = tf.lite.TFLiteConverter.from_keras_model(model)
    converter.optimizations = [tf.lite.Optimize.DEFAULT]
    converter.representative_dataset = lambda: ([x for x in inputs] for inputs in samples)
    variant(converter)
    return converter.convert()


def write_tensors(path, tensors):
    """Writes a file of the format safetensors."""
    header, data = {}, b""
    for name, array in tensors.items():
        raw = np.ascontiguousarray(array).tobytes()
        header[name] = {"dtype": TYPES[array.dtype.name], "shape": list(array.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head + data)


def quantized(x, detail):
    scale, zero_point = detail["quantization"]
    if scale == 0:
        return x
    limits = np.iinfo(detail["dtype"])
    return np.clip(np.round(x / scale) + zero_point, limits.min, limits.max).astype(detail["dtype"])


def case(name, model, variant, samples):
    """Returns the case of a model. Fails with a RuntimeError if TensorFlow has no kernel for a converted operator."""
    file, vectors, key = f"{name}_{variant.__name__}.tflite", f"{name}_{variant.__name__}.safetensors", variant.__name__
    content = converted(model, variant, samples)
    with open(f"{folder}/{file}", "wb") as out:
        out.write(content)
    interpreter = tf.lite.Interpreter(
        model_content=content,
        experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF,
        experimental_preserve_all_tensors=True,
    )
    interpreter.allocate_tensors()
    operators = [
        {"op": op["op_name"], "inputs": op["inputs"].tolist(), "outputs": op["outputs"].tolist()} for op in interpreter._get_ops_details()
    ]
    tensors, runs = {}, []
    for run, inputs in enumerate(samples[:RUNS]):
        keys = {"inputs": [], "ref": []}
        # The order of a converted model's inputs may be another one, but here all of them have the same type.
        for at, detail in enumerate(interpreter.get_input_details()):
            x = quantized(inputs[at], detail)
            interpreter.set_tensor(detail["index"], x)
            keys["inputs"].append(f"{key}/in/{run}/{at}")
            tensors[keys["inputs"][-1]] = x
        interpreter.invoke()
        for at, detail in enumerate(interpreter.get_output_details()):
            keys["ref"].append(f"{key}/ref/{run}/out{at}")
            tensors[keys["ref"][-1]] = interpreter.get_tensor(detail["index"])
        if run == 0:
            for index in {index for op in operators for index in op["outputs"]}:
                tensors[f"{key}/tensors/{index}"] = interpreter.get_tensor(index)
        runs.append({"run": run, "inputs": keys["inputs"], "outputs": {"ref": keys["ref"]}})
    write_tensors(f"{folder}/{vectors}", tensors)
    return {"id": f"{name}/{key}", "file": file, "vectors": vectors, "runs": runs, "operators": operators}


def main():
    keras.utils.set_random_seed(3)
    random = np.random.default_rng(5)
    cases, refused = [], {}
    kinds = [*((build, VARIANTS) for build in MODELS), *((build, INT8_VARIANTS) for build in INT8_MODELS), (transformer, [int8])]
    for build, variants in kinds:
        model = build()
        # Keras begins with biases of 0.
        for weights in model.weights:
            if weights.name == "bias":
                weights.assign(random.uniform(-0.5, 0.5, weights.shape))
        shapes = [x.shape for x in model.inputs]
        samples = [[random.normal(size=shape).astype(np.float32) for shape in shapes] for _ in range(16)]
        for variant in variants:
            try:
                cases.append(case(build.__name__, model, variant, samples))
            except (RuntimeError, ValueError, tf.errors.OpError) as error:
                refused[f"{build.__name__}/{variant.__name__}"] = str(error)
    print(json.dumps(refused))
    with open(f"{folder}/cases.json", "w") as file:
        json.dump({"cases": cases}, file)


main()
