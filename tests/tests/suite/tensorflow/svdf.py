"""Writes two models with two singular value decomposition filters each, float and int8, and what TensorFlow Lite's reference kernels compute
of a sequence of frames: the states of the filters last from one call to the next. The states of a model have the same name.

Argument: the folder for `NAME.tflite`, `NAME.in` and `NAME.out`, which have the frames one after another.
"""

import sys

import flatbuffers
import numpy as np
import tensorflow as tf
from tensorflow.lite.python import schema_py_generated as schema

(folder,) = sys.argv[1:]
RANK, STEPS, FRAMES = 2, 5, 12
WIDTHS = [6, 4, 3]
KINDS = schema.TensorType
TYPES = {"float32": KINDS.FLOAT32, "int8": KINDS.INT8, "int16": KINDS.INT16, "int32": KINDS.INT32}


def model(tensors):
    """Returns the bytes of a model. Tensors are: name, dtype, shape, value or None, scale and zero point or None. The first one is the input,
    and each filter has four operands and a result."""
    result, graph = schema.ModelT(), schema.SubGraphT()
    result.version, result.buffers, graph.tensors, graph.operators = 3, [schema.BufferT()], [], []
    for name, kind, shape, value, quantization in tensors:
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
    for x in range(0, len(tensors) - 1, 5):
        operator = schema.OperatorT()
        operator.inputs, operator.outputs = list(range(x, x + 5)), [x + 5]
        operator.builtinOptionsType, operator.builtinOptions = schema.BuiltinOptions.SVDFOptions, schema.SVDFOptionsT()
        operator.builtinOptions.rank = RANK
        operator.builtinOptions.fusedActivationFunction = schema.ActivationFunctionType.RELU
        graph.operators.append(operator)
    code = schema.OperatorCodeT()
    code.builtinCode, code.deprecatedBuiltinCode, code.version = schema.BuiltinOperator.SVDF, schema.BuiltinOperator.SVDF, 3
    graph.inputs, graph.outputs, graph.name = [0], [len(tensors) - 1], "main"
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
        results.append(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))
    for ending, data in [("tflite", content), ("in", frames.tobytes()), ("out", np.concatenate(results).tobytes())]:
        with open(f"{folder}/{name}.{ending}", "wb") as file:
            file.write(data)


def main():
    random = np.random.default_rng(7)

    def real(*shape):
        return random.normal(size=shape).astype(np.float32)

    def integers(dtype, limit, *shape):
        return random.integers(-limit, limit, size=shape).astype(dtype)

    floats = [("x", "float32", [1, WIDTHS[0]], None, None)]
    quantized = [("x", "int8", [1, WIDTHS[0]], None, (0.03, -11))]
    for width, units in zip(WIDTHS, WIDTHS[1:]):
        filters = RANK * units
        shapes = {"features": [filters, width], "time": [filters, STEPS], "bias": [units]}
        floats += [(name, "float32", shape, real(*shape), None) for name, shape in shapes.items()]
        floats += [("state", "float32", [1, filters * STEPS], None, None), ("y", "float32", [1, units], None, None)]
        kinds = [("int8", 127, (0.011, 0)), ("int16", 2000, (0.0007, 0)), ("int32", 30000, (0.0000014, 0))]
        quantized += [
            (name, kind, shape, integers(kind, limit, *shape), quantization)
            for (name, shape), (kind, limit, quantization) in zip(shapes.items(), kinds)
        ]
        quantized += [("state", "int16", [1, filters * STEPS], None, (0.002, 0)), ("y", "int8", [1, units], None, (0.09, 7))]
    write("svdf_float", model(floats), real(FRAMES, WIDTHS[0]))
    write("svdf_int8", model(quantized), integers("int8", 128, FRAMES, WIDTHS[0]))


main()
