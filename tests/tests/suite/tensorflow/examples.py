"""Parses and writes Examples with TensorFlow. Arguments: the task, and the folder of the files to read and write."""

import json
import struct
import sys

import numpy as np
import tensorflow as tf

task, folder = sys.argv[1:]


def float_bits(value):
    return "NaN" if value != value else struct.unpack("<I", struct.pack("<f", value))[0]


def contents(example):
    """Returns the names in hexadecimal, with the kinds and the values. Floats are given as their bits."""
    out = {}
    for name, feature in example.features.feature.items():
        kind = feature.WhichOneof("kind")
        values = list(getattr(feature, kind).value) if kind else []
        if kind == "bytes_list":
            values = [value.hex() for value in values]
        if kind == "float_list":
            values = [float_bits(value) for value in values]
        out[name.encode().hex()] = [kind, values]
    return out


def built(example):
    """Returns a copy of an Example that is built in Python."""
    new = tf.train.Example()
    new.features.SetInParent()
    for name, feature in example.features.feature.items():
        target = new.features.feature[name]
        kind = feature.WhichOneof("kind")
        if kind:
            getattr(target, kind).SetInParent()
            getattr(target, kind).value.extend(getattr(feature, kind).value)
    return new


def both_ways():
    with open(f"{folder}/contents.jsonl", "w") as out, tf.io.TFRecordWriter(f"{folder}/tensorflow.tfrecord") as writer:
        for record in tf.data.TFRecordDataset(f"{folder}/gradlet.tfrecord").as_numpy_iterator():
            example = tf.train.Example.FromString(record)
            again = example.SerializeToString(deterministic=True)
            out.write(json.dumps([again == record, contents(example)]) + "\n")
            writer.write(built(example).SerializeToString())


def feature_of(spec):
    dtype = tf.as_dtype(spec["dtype"])
    default = spec.get("default_value")
    match spec["kind"]:
        case "FixedLenFeature":
            return tf.io.FixedLenFeature(spec["shape"], dtype, default)
        case "VarLenFeature":
            return tf.io.VarLenFeature(dtype)
        case "FixedLenSequenceFeature":
            return tf.io.FixedLenSequenceFeature(spec["shape"], dtype, spec["allow_missing"], default)
        case "RaggedFeature":
            return tf.io.RaggedFeature(dtype)


def number(value):
    if isinstance(value, float) and value != value:
        return "NaN"
    if value in (float("inf"), float("-inf")):
        return "Infinity" if value > 0 else "-Infinity"
    return value


def dense(tensor):
    data = tensor.numpy().reshape(-1).tolist() if tensor.shape.rank else [tensor.numpy()]
    if tensor.dtype == tf.string:
        data = [{"hex": value.hex()} for value in data]
    else:
        data = [number(value if isinstance(value, (int, float)) else value.item()) for value in data]
    return {"dtype": tensor.dtype.name, "shape": tensor.shape.as_list(), "data": data}


def value_of(value):
    if isinstance(value, tf.SparseTensor):
        parts = {"indices": dense(value.indices), "values": dense(value.values)}
        return {"sparse": parts | {"dense_shape": value.dense_shape.numpy().tolist()}}
    if isinstance(value, tf.RaggedTensor):
        splits = [splits.numpy().tolist() for splits in value.nested_row_splits]
        return {"ragged": {"values": dense(value.flat_values), "row_splits": splits}}
    return dense(value)


def values_of(values):
    return {name: value_of(value) for name, value in values.items()}


def parsed(case):
    def features(which):
        return {name: feature_of(spec) for name, spec in case[which].items()}

    record = case["serialized_hex"]
    if "sequence_features" in case:
        context, steps = tf.io.parse_single_sequence_example(
            bytes.fromhex(record), features("context_features"), features("sequence_features")
        )
        return {"context": values_of(context), "sequence": values_of(steps)}
    if case["fn"] == "parse_example":
        return values_of(tf.io.parse_example([bytes.fromhex(record) for record in record], features("features")))
    return values_of(tf.io.parse_single_example(bytes.fromhex(record), features("features")))


def parse():
    with open(f"{folder}/cases.json") as file:
        cases = json.load(file)
    for case in cases:
        try:
            case["ok"] = parsed(case)
        except UnicodeDecodeError as error:
            case["error"] = {"type": "UnicodeDecodeError", "message": str(error)}
        except (tf.errors.OpError, ValueError) as error:
            case["error"] = {"type": type(error).__name__, "core": core(error)}
    with open(f"{folder}/judged.json", "w") as file:
        json.dump(cases, file)


def tensors():
    """Returns tensor messages, and numbers in raw bytes, in the form of the golden cases."""
    random = np.random.default_rng(7)
    names = "float32 float64 float16 bfloat16 int8 uint8 int32 int64 bool string".split()
    messages, compact = [], []
    for name in names:
        for shape in [[], [0], [3], [2, 1, 2], [40]]:
            values = random.integers(0, 100, shape)
            constant = tf.strings.as_string(values) if name == "string" else tf.cast(values, name)
            case = {"dtype": name, "shape": shape, "values": dense(constant)["data"]}
            messages.append(case | {"serialized_tensorproto_hex": tf.io.serialize_tensor(constant).numpy().hex()})
            # In the field for the type. A message may leave out trailing values that equal the last one.
            proto = tf.make_tensor_proto(np.ravel(constant.numpy())[:1], shape=shape) if shape != [0] else tf.make_tensor_proto(constant)
            case["values"] = case["values"][:1] * len(case["values"])
            compact.append(case | {"serialized_tensorproto_hex": proto.SerializeToString().hex()})
    raw = []
    for name in "uint8 int8 bool int16 uint16 float16 int32 float32 int64 float64".split():
        for little in [True, False]:
            for length in [0, 1, 8, 24]:
                data = bytes(length) if name == "bool" else random.bytes(length)
                if name.startswith("float"):
                    # Numbers with few digits in JSON.
                    numbers = (np.arange(24) / 4 - 1).astype(name)
                    data = (numbers if little else numbers.byteswap()).tobytes()[:length]
                case = {"out_type": name, "little_endian": little, "bytes_hex": data.hex()}
                try:
                    case["ok"] = dense(tf.io.decode_raw(data, tf.as_dtype(name), little_endian=little))
                except tf.errors.OpError as error:
                    case["error"] = {"type": type(error).__name__, "core": core(error)}
                raw.append(case)
    with open(f"{folder}/serialize_tensor.json", "w") as file:
        json.dump({"serialize_tensor": messages, "decode_raw": raw}, file)
    with open(f"{folder}/compact.json", "w") as file:
        json.dump(compact, file)


def core(error):
    return getattr(error, "message", str(error)).split("}} ", 1)[-1].rsplit(" [Op:", 1)[0]


{"tensors": tensors, "both_ways": both_ways, "parse": parse}[task]()
