"""A "training run" of milliseconds: writes a real trace through the real writer, without torch.

What the command line does with commands, logs, signals and folders needs no model. Arguments:
`--scale X` multiplies what it computes, `--sleep` goes on for a minute after the last iteration,
`--fail-after` exits with 3 then, `--iterations N` stops early, `--replayer none` asks for one
launch per leg. `--hang` stands still in its second iteration, `--crash` dies of a TypeError there
and `--crash-first` before anything is written. `--refuse` writes that a part of it is not
supported, `--crash-grafted` dies in its first iteration if it is given another run's data.
`--pause SECONDS` waits after each leg, `--say-cost` says what reruns take before the first.
"""

import argparse
import array
import json
import os
import sys
import time
import zlib

from ttrace import _native
from ttrace.capture.cost import Cost

parser = argparse.ArgumentParser()
parser.add_argument("--scale", type=float, default=1.0)
parser.add_argument("--sleep", action="store_true")
parser.add_argument("--fail-after", action="store_true")
parser.add_argument("--iterations", type=int, default=2)
parser.add_argument("--replayer", default="megatron")
parser.add_argument("--hang", action="store_true")
parser.add_argument("--crash", action="store_true")
parser.add_argument("--crash-first", action="store_true")
parser.add_argument("--refuse", action="store_true")
parser.add_argument("--crash-grafted", action="store_true")
parser.add_argument("--pause", type=float, default=0.0)
parser.add_argument("--say-cost", action="store_true")
arguments = parser.parse_args()
if arguments.crash_first:
    int([])

leg = os.environ["TTRACE_LEG"]
end = int(os.environ["TTRACE_ITERATIONS"].partition(":")[2])
legs = [leg]
if leg == "real" and arguments.replayer != "none":
    legs += os.environ["TTRACE_LEGS"].split(",")
writer = _native.Writer(os.environ["TTRACE_OUT"], 0, 1, [("tp", 1)], [0])
writer.note("replayer", json.dumps({"name": arguments.replayer}))
if arguments.refuse:
    why = {"what": "a wheel of glass", "reason": "it breaks", "way_out": "take steel"}
    writer.note("unsupported", json.dumps(why))
if arguments.crash_grafted and "data" in os.environ.get("TTRACE_GRAFT_WHAT", ""):
    for what in os.environ["TTRACE_GRAFT_WHAT"].split(","):
        writer.note("graft_begins", json.dumps({"what": what, "iteration": 0}))
    writer.close(False, "the process ended before iteration 0 was complete")
    int([])
for iteration in range(min(arguments.iterations, end)):
    for name in filter(None, legs):
        noise = 1e-7 * zlib.crc32(name.encode()) / 2**32 if "noise" in name else 0.0
        for k, fqn in enumerate(("embedding", "layers.0.mlp", "layers.1.mlp")):
            values = array.array(
                "f", ((i + k + iteration + 1) * arguments.scale * (1 + noise) for i in range(8))
            )
            spec = writer.spec(fqn, "output", "0", "float32", [8])
            writer.append(spec, name, iteration, 0, "forward", -1, 0, values.buffer_info()[0], [1])
            if arguments.hang and iteration == 1 and k == 2:
                time.sleep(99)
            if arguments.crash and iteration == 1 and k == 2:
                writer.close(False, "the process ended before iteration 1 was complete")
                int([])
        writer.seal(iteration, name)
        if arguments.say_cost and iteration == 0 and name == "real":
            cost = Cost()
            cost.add("output", 96, 96)
            cost.say(os.environ["TTRACE_OUT"], dict.fromkeys(filter(None, legs[1:]), 0), 10**9)
        time.sleep(arguments.pause)
    print(f"iteration {iteration} done", flush=True)
writer.close(True, "")
if arguments.sleep:
    time.sleep(60)
    print("ran to its end", flush=True)
sys.exit(3 if arguments.fail_after else 0)
