"""Runs the files of a folder in TensorFlow Lite's interpreter, and compares the results with those beside them.

Argument: a folder with models `NAME.tflite`, their arguments `NAME.xN.npy`, and the expected results `NAME.yN.npy`. Integers must be equal,
and floats near. Prints the number of models.
"""

import glob
import sys

import numpy as np
import tensorflow as tf

(folder,) = sys.argv[1:]
KINDS = tf.lite.experimental.OpResolverType


def interpreter(path):
    """Returns an interpreter with the reference kernels, or with the others if one of them is missing."""
    try:
        found = tf.lite.Interpreter(path, experimental_op_resolver_type=KINDS.BUILTIN_REF)
        found.allocate_tensors()
    except (RuntimeError, ValueError):
        found = tf.lite.Interpreter(path, experimental_op_resolver_type=KINDS.BUILTIN_WITHOUT_DEFAULT_DELEGATES)
        found.allocate_tensors()
    return found


def check(path):
    name = path.removesuffix(".tflite")
    model = interpreter(path)
    runner = model.get_signature_runner("serving_default")
    inputs = {key: np.load(f"{name}.{key}.npy") for key in runner.get_input_details()}
    outputs = runner(**inputs)
    assert outputs, name
    for key, got in outputs.items():
        want = np.load(f"{name}.{key}.npy")
        assert got.dtype == want.dtype and got.shape == want.shape, (name, key, got.dtype, got.shape, want.dtype, want.shape)
        if np.issubdtype(want.dtype, np.floating):
            np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5, err_msg=f"{name} {key}")
        else:
            np.testing.assert_array_equal(got, want, err_msg=f"{name} {key}")


paths = sorted(glob.glob(f"{folder}/*.tflite"))
for path in paths:
    check(path)
print(len(paths))
