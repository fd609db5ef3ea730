"""A second reader and executor of gradlet's formats, written from SPEC.md alone. Python 3.10 and NumPy 2.

Commands: `run` and `verify` of an artifact, `checkpoint`, `slots` and `frames` (as JSON), `samples` of a folder, and `spec` for the
dumps of SPEC.md. It has the ops that MLPs, CNNs, LSTMs, Adam, SGD, branches and loops need, and all ops on quantised tensors. An artifact
that needs another one is refused with error 18, as SPEC.md asks of a reader without a kernel. Real functions have kernels in f32 only.
"""

import argparse
import json
import sys
from pathlib import Path

sys.dont_write_bytecode = True  # no caches beside the sources

from base import GradletError
from flat import read_slots, restore
from samples import samples_command
from session import load
from spec_dumps import spec_command
from telemetry import read_frames

def error_of(e: GradletError) -> dict:
    return {"error": e.code, "text": e.text}

def run_command(args):
    session = load(args.artifact)
    for line in filter(str.strip, sys.stdin):
        request = json.loads(line)
        try:
            if request.get("variables"):
                answer = {"variables": session.variables()}
            else:
                outputs = session.run(request["signature"], [bytes.fromhex(x) for x in request["inputs"]])
                answer = {"outputs": [x.hex() for x in outputs]}
        except GradletError as e:
            answer = error_of(e)
        print(json.dumps(answer), flush=True)

def checkpoint_command(args):
    session = load(args.artifact)
    found = restore(session, Path(args.file).read_bytes())
    names = session.artifact.names
    print(json.dumps({"variables": {names[session.artifact.variables[i].name]: session.value(i).hex() for i in found}}))

def main():
    parser = argparse.ArgumentParser(description="A second reader of gradlet's formats, from SPEC.md alone.")
    commands = parser.add_subparsers(required=True)
    for name, arguments, function in [
            ("run", ["artifact"], run_command),
            ("verify", ["artifact"], lambda a: load(a.artifact) and print("ok")),
            ("checkpoint", ["file", "--artifact"], checkpoint_command),
            ("slots", ["file", "--block", "--slots", "--word"],
             lambda a: print(json.dumps(read_slots(Path(a.file).read_bytes(), a.block, a.slots, a.word)))),
            ("frames", ["file"], lambda a: print(json.dumps(read_frames(Path(a.file).read_bytes())))),
            ("samples", ["folder"], samples_command), ("spec", ["spec"], spec_command)]:
        command = commands.add_parser(name)
        for argument in arguments:
            optional = {"required": True, "type": str if argument == "--artifact" else int} if argument.startswith("-") else {}
            command.add_argument(argument, **optional)
        command.set_defaults(function=function)
    args = parser.parse_args()
    try:
        sys.exit(args.function(args) is False)
    except GradletError as e:
        print(json.dumps(error_of(e)))
        sys.exit(1)

if __name__ == "__main__":
    main()
