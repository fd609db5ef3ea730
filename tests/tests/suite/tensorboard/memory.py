"""Prints the data of xprof's tool `memory_profile` for a profile, and the names in xprof's statistics of ops."""

import json
import sys

from xprof.convert import raw_to_tool_data


def ask(tool):
    data, _ = raw_to_tool_data.xspace_to_tool_data([sys.argv[1]], tool, {"use_saved_result": False})
    return json.loads(data)


for device, profile in ask("memory_profile")["memoryProfilePerAllocator"].items():
    summary = profile["profileSummary"]
    print(f"{device}: peak {summary['peakStats']['peakBytesInUse']} of {summary['memoryCapacity']}")
    for snapshot in profile["sampledTimelineSnapshots"]:
        change, total = snapshot["activityMetadata"], snapshot["aggregationStats"]
        print(change["memoryActivity"], change["requestedBytes"], "->", total["heapAllocatedBytes"], change["tfOpName"])
    for row in profile["activeAllocations"]:
        index, special = int(row["snapshotIndex"]), int(row["specialIndex"])
        place = profile["specialAllocations"][special] if index < 0 else profile["memoryProfileSnapshots"][index]["activityMetadata"]
        print("at the peak:", row["numOccurrences"], place["tfOpName"])
names = {row["c"][3]["v"] for table in ask("framework_op_stats") for row in table["rows"]}
print("ops:", *sorted(names - {"IDLE"}))
