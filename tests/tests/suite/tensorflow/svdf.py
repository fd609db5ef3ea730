"""Writes two models with a singular value decomposition filter, float and int8, and what TensorFlow Lite's reference kernels compute of a
sequence of frames: the state of the filter lasts from one call to the next.

Argument: the folder for `NAME.tflite`, `NAME.in` and `NAME.out`, which have the frames one after another.
"""

import sys

import flatbuffers
import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

(folder,) = sys.argv[1:]
WIDTH, UNITS, RANK, STEPS, FRAMES = 6, 4, 2, 5, 12
FILTERS = UNITS * RANK
KINDS = schema.TensorType
TYPES = {"float32": KINDS.FLOAT32, "int8": KINDS.INT8, "int16": KINDS.INT16, "int32": KINDS.INT32}


def model(operands, dtype, output_quantization):
    """Returns the bytes of a model. Operands are: name, dtype, shape, value or None, scale and zero point or None."""
    result, graph = schema.ModelT(), schema.SubGraphT()
    result.version, result.buffers, graph.tensors = 3, [schema.BufferT()], []
    for name, kind, shape, value, quantization in [*operands, ("y", dtype, [1, UNITS], None, output_quantization)]:
        tensor = schema.TensorT()
        tensor.name, tensor.type, tensor.shape, tensor.buffer = name, TYPES[kind], shape, 0
        tensor.isVariable = name == "state"
        if value is not None:
            tensor.buffer = len(result.buffers)
            result.buffers.append(schema.BufferT())
            result.buffers[-1].data = list(value.tobytes())
        if quantization:
            tensor.quantization = schema.QuantizationParametersT()
            tensor.quantization.scale, tensor.quantization.zeroPoint = [quantization[0]], [quantization[1]]
        graph.tensors.append(tensor)
    operator, code = schema.OperatorT(), schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = schema.BuiltinOperator.SVDF, schema.BuiltinOperator.SVDF, 3
    operator.inputs, operator.outputs = list(range(5)), [5]
    operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.SVDFOptions, schema.SVDFOptionsT()
    operator.builtinOptions.rank = RANK
    operator.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.RELU
    graph.operators, graph.inputs, graph.outputs, graph.name = [operator], [0], [5], "main"
    result.operatorCodes, result.subgraphs = [code], [graph]
    builder = flatbuffers.Builder(1024)
    builder.Finish(result.Pack(builder), b"TFL3")
    return bytes(builder.Output())


def write(name, content, frames):
    interpreter = tf.lite.Interpreter(
        model_content=content, experimental_op_resolver_type=tf.lite.experimental.OpResolverType.BUILTIN_REF
    )
    interpreter.allocate_tensors()
    results = []
    for frame in frames:
        interpreter.set_tensor(0, frame[None])
        interpreter.invoke()
        results.append(interpreter.get_tensor(5))
    for ending, data in [("tflite", content), ("in", frames.tobytes()), ("out", np.concatenate(results).tobytes())]:
        with open(f"{folder}/{name}.{ending}", "wb") as file:
            file.write(data)


def main():
    random = np.random.default_rng(7)
    real = lambda *shape: random.normal(size=shape).astype(np.float32)
    integers = lambda dtype, limit, *shape: random.integers(-limit, limit, size=shape).astype(dtype)
    shapes = [[FILTERS, WIDTH], [FILTERS, STEPS], [UNITS]]
    names, state = ["features", "time", "bias"], ("state", [1, FILTERS * STEPS], None)
    floats = [(name, "float32", shape, real(*shape), None) for name, shape in zip(names, shapes)]
    content = model([("x", "float32", [1, WIDTH], None, None), *floats, (state[0], "float32", *state[1:], None)], "float32", None)
    write("svdf_float", content, real(FRAMES, WIDTH))
    kinds = [("int8", 127, (0.011, 0)), ("int16", 2000, (0.0007, 0)), ("int32", 30000, (0.0000014, 0))]
    constants = [
        (name, kind, shape, integers(kind, limit, *shape), quantization)
        for name, shape, (kind, limit, quantization) in zip(names, shapes, kinds)
    ]
    operands = [("x", "int8", [1, WIDTH], None, (0.03, -11)), *constants, (state[0], "int16", *state[1:], (0.002, 0))]
    write("svdf_int8", model(operands, "int8", (0.09, 7)), integers("int8", 128, FRAMES, WIDTH))


main()
