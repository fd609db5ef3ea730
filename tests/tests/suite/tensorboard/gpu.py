"""Prints xprof's data of a profile of a GPU: its ops and kernels, and the parts of each training step, with times in microseconds."""

import json
import sys

from xprof.convert import raw_to_tool_data


def ask(tool):
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {"use_saved_result": False})
    return json.loads(data)


def rows(table):
    names = [column["id"] for column in table["cols"]]
    return [dict(zip(names, (cell["v"] for cell in row["c"]))) for row in table["rows"]]


for row in sorted(rows(ask("framework_op_stats")[0]), key=lambda row: row["operation"]):
    if row["host_or_device"] == "Device" and row["operation"] != "IDLE":
        print(f"op {row['operation']}: {row['occurrences']:g} in {row['total_time']:g}")
for row in sorted(rows(ask("kernel_stats")), key=lambda row: row["kernel_name"]):
    print(f"kernel {row['kernel_name']}: {row['occurrences']:g} in {row['total_duration_us']:g}")
for row in rows(ask("overview_page")[1]):
    compute, moved_in, moved_out = (1000 * row[part] for part in ["deviceComputeTimeMs", "infeedTimeMs", "outfeedTimeMs"])
    print(f"step {row['stepnum']}: compute {compute:g}, input {moved_in:g}, output {moved_out:g}")
events = ask("trace_viewer")["traceEvents"]
planes = {event["pid"]: event["args"]["name"] for event in events if event.get("name") == "process_name"}
for event in events:
    if planes.get(event.get("pid")) == "/device:GPU:0" and event.get("ph") == "X" and event["tid"] == 1:
        print(f"stream: {event['name']} {event['dur']:g}")
print("memory:", *ask("memory_profile")["memoryProfilePerAllocator"])
