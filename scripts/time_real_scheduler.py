"""Time an installed vLLM's real scheduler on recorded cases.

Usage: TINY_MODEL=DIR PYTHONPATH=tests/oracle PYTHON_WITH_VLLM time_real_scheduler.py SCHEDULES.jsonl.gz
Prints steps a second of whole runs, and of schedule() with update_from_output() alone. The engine's settings are
made before the clock starts.
"""
import gzip
import json
import sys
import time

import schedule_wide as oracle

inside = 0.0


def timed(cls, name):
    """Adds the time of a method to `inside`."""
    real = getattr(cls, name)

    def method(self, *args, **kwargs):
        global inside
        start = time.perf_counter()
        try:
            return real(self, *args, **kwargs)
        finally:
            inside += time.perf_counter() - start
    setattr(cls, name, method)


cases = [json.loads(line) for line in gzip.open(sys.argv[1], "rt")]
for case in cases:
    case.pop("expect")
oracle.run(json.loads(json.dumps(cases[0])))
for case in cases:
    specs = [oracle.build(g) for g in case["groups"]]
    size = min(s.block_size for s in specs if not isinstance(s, oracle.ki.MambaSpec))
    key = json.dumps([case["engine"], size], sort_keys=True)
    oracle.ENGINE.clear()
    oracle.ENGINE.update(case["engine"])
    oracle.CONFIGS[key] = oracle.CONFIGS.get(key) or oracle.config(case["engine"], size)
timed(oracle.Scheduler, "schedule")
timed(oracle.Scheduler, "update_from_output")
inside = 0.0
start = time.perf_counter()
steps = sum(len(oracle.run(case)["steps"]) for case in cases)
print(round(steps / (time.perf_counter() - start)), round(steps / inside))
