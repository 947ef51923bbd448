#!/usr/bin/env python3
"""Measure what the number of KV cache groups costs a real vLLM on this machine's CPU.

cpu-group-points.py --vllm PYTHON --output POINTS.jsonl [--k3plan target/release/k3plan] [--concurrency 1 2 4 8 16]

Tiny Gemma 3 models of 24 layers (tests/live/tiny.py) that differ only in how many layers attend to everything: vLLM
makes 2, 3, 4, 6, 8, 12 and 24 groups of them, and 1 with --disable-hybrid-kv-cache-manager. Several servers
(--together, 3 GB each) are up at once, idle but for the one that is measured, so that the machine's slow changes meet
them alike: concurrency by concurrency, model by model, in turn forwards and backwards. A server's log must name the groups that
`k3plan plan` gives, else nothing is measured. One JSON line per model, start and concurrency; its figures are over the
requests of all rounds, and `rounds_itl_ms` has each round's median, which tells how quiet the machine was. Models of
one `lot` of a start are compared best: between lots lies time. On a shared machine run it under `chrt -r 5`.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument("--vllm", required=True, help="Python of an environment with vLLM")
p.add_argument("--output", required=True)
p.add_argument("--k3plan", default=str(ROOT / "target/release/k3plan"))
p.add_argument("--engine", default="0.32", help="version of vLLM that is planned for")
p.add_argument("--layers", type=int, default=24)
p.add_argument("--full-every", type=int, nargs="+", default=[2, 3, 4, 6, 8, 12, 24])
p.add_argument("--one-group-of", type=int, default=6, help="also this model without the hybrid manager")
p.add_argument("--window", type=int, default=512)
p.add_argument("--concurrency", type=int, nargs="+", default=[1, 2, 4, 8, 16])
p.add_argument("--starts", type=int, default=2)
p.add_argument("--together", type=int, default=4)
p.add_argument("--input-len", type=int, default=128)
p.add_argument("--output-len", type=int, default=64)
p.add_argument("--waves", type=int, default=1, help="prompts of a round, in multiples of its concurrency")
p.add_argument("--rounds", type=int, default=3, help="times a start's points are gone through")
p.add_argument("--port", type=int, default=8400)
p.add_argument("--client-cpus", default=str(max(os.sched_getaffinity(0))), help="'' for all")
p.add_argument("--keep", help="folder for models, logs and results")
a = p.parse_args()

work = pathlib.Path(a.keep or tempfile.mkdtemp())
work.mkdir(parents=True, exist_ok=True)
env = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1")
OFF = "--disable-hybrid-kv-cache-manager"


def command(*words, **more):
    return subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True, **more).stdout


class Model:
    def __init__(self, number, full_every, options):
        self.name = f"full-every-{full_every}" + ("-one-group" if options else "")
        self.options, self.port, self.folder = options, a.port + number, work / f"model-{full_every}"
        command(a.vllm, ROOT / "tests/live/tiny.py", self.folder, "--layers", a.layers, "--full-every", full_every,
                "--window", a.window)
        self.config = json.loads((self.folder / "config.json").read_text())
        plan = [a.k3plan, "plan", "--model", self.folder, "--engine", a.engine, "--max-model-len", "4096", "--json"]
        plan += ["--set", "disable_hybrid_kv_cache_manager=true"] if options else []
        self.groups = [len(group["layers"]) for group in json.loads(command(*plan))["plans"][0]["groups"]]
        self.results = {}

    def start(self):
        self.log = work / f"{self.name}.log"
        words = [a.vllm, "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={self.port}",
                 f"--model={self.folder}", "--served-model-name=tiny", "--load-format=dummy", "--max-model-len=4096",
                 "--max-num-seqs=16", "--enforce-eager", *self.options]
        with open(self.log, "w") as log:
            self.server = subprocess.Popen(words, env=env, stdout=log, stderr=log, start_new_session=True)
        running.append(self)

    def wait(self):
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=2)
                return
            except OSError:
                if self.server.poll() is not None:
                    sys.exit(f"{self.name} ended: see {self.log}")
                time.sleep(0.5)
        sys.exit(f"{self.name} did not answer: see {self.log}")

    def stop(self):
        running.remove(self)
        os.killpg(self.server.pid, signal.SIGTERM)
        self.server.wait()

    def measure(self, start, concurrency, round):
        prompts = max(2, a.waves * concurrency)
        result = work / f"{self.name}-{start}-{concurrency}-{round}.json"
        words = [a.k3plan, "bench", "serve", "--url", f"http://127.0.0.1:{self.port}", "--model", "tiny",
                 "--random-input-len", a.input_len, "--random-output-len", a.output_len, "--num-prompts", prompts,
                 "--num-warmups", 0 if round else concurrency, "--max-concurrency", concurrency, "--ignore-eos",
                 "--temperature", 0, "--seed", 1000 * start + 100 * round + concurrency, "--metrics-interval", 0,
                 "--server-log", self.log, "--output", result]
        if a.client_cpus and shutil.which("taskset"):
            words = ["taskset", "-c", a.client_cpus, *words]
        command(*words, env=env)
        found = json.loads(result.read_text())
        logged = found["k3plan"]["server"]["kv_cache"]["groups"]
        if logged != len(self.groups):
            sys.exit(f"{self.name}: the plan has {len(self.groups)} groups, the server {logged}")
        if found["completed"] != prompts:
            sys.exit(f"{self.name}: {found['failed']} requests failed: see {result}")
        self.results.setdefault((start, concurrency), []).append(found)

    def point(self, start, lot, concurrency):
        rounds = self.results[start, concurrency]
        requests = [(first, gaps, whole) for found in rounds
                    for first, gaps, whole in zip(found["ttfts"], found["itls"], found["latencies"])]
        full = self.config["layer_types"].count("full_attention")
        point = dict(model=self.name, layers=a.layers, full_layers=full, sliding_layers=a.layers - full,
                     window=a.window, groups=len(self.groups), group_size=max(self.groups), concurrency=concurrency,
                     input_len=a.input_len, output_len=a.output_len, start=start, lot=lot, prompts=len(requests),
                     vllm=rounds[0]["k3plan"]["server"]["version"])
        figures = {"itl": [gap for _, gaps, _ in requests for gap in gaps],
                   "tpot": [(whole - first) / (a.output_len - 1) for first, _, whole in requests],
                   "ttft": [first for first, _, _ in requests]}
        for name, seconds in figures.items():
            at = statistics.quantiles(seconds, n=20, method="inclusive")
            for kind, value in [("median", at[9]), ("mean", statistics.mean(seconds)), ("p10", at[1]),
                                ("p25", at[4]), ("p75", at[14])]:
                point[f"{kind}_{name}_ms"] = round(value * 1e3, 4)
        point["rounds_itl_ms"] = [round(found["median_itl_ms"], 4) for found in rounds]
        return dict(point, server_options=self.options, config=self.config)


def measure(number, lot, start):
    """Starts a lot's servers, two at a time, and measures them in turn."""
    for at in range(0, len(lot), 2):
        for model in lot[at:at + 2]:
            model.start()
        for model in lot[at:at + 2]:
            model.wait()
    order = [(concurrency, model) for concurrency in a.concurrency for model in lot]
    for round in range(a.rounds):
        for concurrency, model in order[:: 1 if round % 2 == 0 else -1]:
            model.measure(start, concurrency, round)
    for concurrency, model in order:
        point = model.point(start, number, concurrency)
        output.write(json.dumps(point) + "\n")
        output.flush()
        print(f"start {start}, concurrency {concurrency:>2}, {point['groups']:>2} groups: "
              f"ITL {point['median_itl_ms']:.3f} ms {point['rounds_itl_ms']}, TPOT {point['median_tpot_ms']:.3f} ms, "
              f"TTFT {point['median_ttft_ms']:.3f} ms", flush=True)
    for model in lot:
        model.stop()


running = []
models = [Model(number, every, []) for number, every in enumerate(a.full_every)]
if a.one_group_of:
    models.append(Model(len(models), a.one_group_of, [OFF]))
try:
    with open(a.output, "w") as output:
        for start in range(1, a.starts + 1):
            order = models if start % 2 else models[::-1]
            # Few and many groups in every lot.
            lots = [order[first::-(-len(order) // a.together)] for first in range(-(-len(order) // a.together))]
            for number, lot in enumerate(lots, 1):
                measure(number, lot, start)
finally:
    for model in list(running):
        model.stop()
