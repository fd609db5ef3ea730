"""`write FOLDER SPEC` writes the items in SPEC with TensorFlow. `read FOLDER …` prints EventAccumulator's data of each folder as JSON."""

import json
import sys

import numpy as np
import tensorflow as tf
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import api as hp
from tensorboard.plugins.hparams import plugin_data_pb2

DTYPES = {"f32": np.float32, "f64": np.float64, "i32": np.int32, "i64": np.int64, "u8": np.uint8, "bool": np.bool_}


def value(spec):
    """Returns the array of an object `{dtype, shape, hex}` or `{shape, strings}`."""
    if "strings" in spec:
        strings = [bytes.fromhex(text) for text in spec["strings"]]
        return np.array(strings, dtype=object).reshape(spec["shape"]) if spec["shape"] else strings[0]
    return np.frombuffer(bytes.fromhex(spec["hex"]), DTYPES[spec["dtype"]]).reshape(spec["shape"])


def write_one(item):
    kind, tag, step = item["kind"], item["tag"], item["step"]
    description = item["description"] or None
    if kind == "scalar":
        tf.summary.scalar(tag, value(item["value"])[()], step=step, description=description)
    elif kind == "histogram":
        tf.summary.histogram(tag, value(item["value"]), step=step, buckets=item["buckets"], description=description)
    elif kind == "image":
        tf.summary.image(tag, value(item["value"]), step=step, max_outputs=item["most"], description=description)
    elif kind == "text":
        tf.summary.text(tag, value(item["value"]), step=step, description=description)
    elif kind == "audio":
        tf.summary.audio(tag, value(item["value"]), item["rate"], step=step, max_outputs=item["most"], description=description)
    elif kind == "raw":
        metadata = tf.compat.v1.SummaryMetadata()
        metadata.plugin_data.plugin_name = item["plugin"]
        metadata.plugin_data.content = bytes.fromhex(item["content"])
        tf.summary.write(tag, value(item["value"]), step=step, metadata=metadata)
    elif kind == "hparams":
        hp.hparams(item["values"], trial_id=item["trial"])
    elif kind == "graph":
        graph = tf.compat.v1.GraphDef.FromString(bytes.fromhex(item["graph"]))
        tf.summary.graph(graph)
    else:
        raise ValueError(kind)


def write(folder, spec):
    with open(spec) as file:
        items = json.load(file)
    writer = tf.summary.create_file_writer(folder)
    with writer.as_default():
        for item in items:
            tf.summary.experimental.set_step(item["default_step"])
            if item["scope"]:
                with tf.name_scope(item["scope"]):
                    write_one(item)
            else:
                write_one(item)
    writer.close()


def content(name, data):
    """Returns the contents of a plugin's metadata, without the time."""
    if name != "hparams":
        return data.hex()
    data = plugin_data_pb2.HParamsPluginData.FromString(data)
    data.session_start_info.start_time_secs = 0
    return str(data)


def shown(plugin, tensor):
    array = tf.make_ndarray(tensor)
    result = {"dtype": tf.as_dtype(tensor.dtype).name, "shape": list(array.shape)}
    strings = array.ravel().tolist() if array.dtype == object else None
    if plugin == "images":
        # Compare the pixels, because an encoder can compress them in many ways.
        pixels = [tf.io.decode_png(png) for png in strings[2:]]
        result["size"] = [text.decode() for text in strings[:2]]
        result["pixels"] = [[list(image.shape), image.numpy().tobytes().hex()] for image in pixels]
    elif strings is not None:
        result["strings"] = [text.hex() for text in strings]
    elif array.dtype.kind == "f":
        # All NaNs count as equal.
        result["numbers"] = [repr(float(number)) for number in array.ravel()]
    else:
        result["numbers"] = array.ravel().tolist()
    return result


def read(folder):
    guidance = {kind: 0 for kind in ("tensors", "scalars", "images", "audio", "histograms", "compressedHistograms", "graph")}
    accumulator = EventAccumulator(folder, size_guidance=guidance, purge_orphaned_data=True)
    accumulator.Reload()
    tags = accumulator.Tags()
    result = {"tags": {kind: found for kind, found in tags.items() if kind != "tensors"}, "tensors": {}}
    if tags["graph"]:
        result["graph"] = [[node.name, node.op, list(node.input)] for node in accumulator.Graph().node]
    for tag in tags["tensors"]:
        metadata = accumulator.SummaryMetadata(tag)
        plugin = metadata.plugin_data.plugin_name
        result["tensors"][tag] = {
            "plugin": plugin,
            "content": content(plugin, metadata.plugin_data.content),
            "description": metadata.summary_description,
            "display_name": metadata.display_name,
            "points": [[event.step, shown(plugin, event.tensor_proto)] for event in accumulator.Tensors(tag)],
        }
    return result


if sys.argv[1] == "write":
    write(*sys.argv[2:])
else:
    print(json.dumps([read(folder) for folder in sys.argv[2:]]))
