#!/usr/bin/env python3
"""Measure what the number of KV cache groups costs a real vLLM on this machine's CPU.

cpu-group-points.py --vllm PYTHON --output POINTS.jsonl [--k3plan target/release/k3plan] [--concurrency 1 2 4 8 16]

Tiny Gemma 3 models of 24 layers (tests/live/tiny.py) that differ only in how many layers attend to everything: vLLM
makes 2, 3, 4, 6, 8, 12 and 24 groups of them, and 1 with --disable-hybrid-kv-cache-manager. All servers are up at
once, idle but for the one that is measured, so that the machine's slow changes meet all of them alike: concurrency
by concurrency, model by model, and backwards on the second start. A server's log must name the groups that
`k3plan plan` gives, else nothing is measured. One JSON line per model, start and concurrency.
"""
import argparse
import json
import os
import pathlib
import shutil
import signal
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
p.add_argument("--input-len", type=int, default=128)
p.add_argument("--output-len", type=int, default=64)
p.add_argument("--waves", type=int, default=2, help="prompts of a point, in multiples of its concurrency")
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

    def point(self, start, concurrency):
        prompts = max(4, a.waves * concurrency)
        result = work / f"{self.name}-{start}-{concurrency}.json"
        words = [a.k3plan, "bench", "serve", "--url", f"http://127.0.0.1:{self.port}", "--model", "tiny",
                 "--random-input-len", a.input_len, "--random-output-len", a.output_len, "--num-prompts", prompts,
                 "--num-warmups", concurrency, "--max-concurrency", concurrency, "--ignore-eos", "--temperature", 0,
                 "--seed", 100 * start + concurrency, "--metric-percentiles", "25,75", "--metrics-interval", 0,
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
        full = self.config["layer_types"].count("full_attention")
        point = dict(model=self.name, layers=a.layers, full_layers=full, sliding_layers=a.layers - full,
                     window=a.window, groups=logged, group_size=max(self.groups), concurrency=concurrency,
                     input_len=a.input_len, output_len=a.output_len, start=start, prompts=prompts,
                     vllm=found["k3plan"]["server"]["version"])
        for name in ("itl", "tpot", "ttft"):
            for kind in ("median", "mean", "std", "p25", "p75"):
                point[f"{kind}_{name}_ms"] = round(found[f"{kind}_{name}_ms"], 4)
        return dict(point, server_options=self.options, config=self.config)


running = []
models = [Model(number, every, []) for number, every in enumerate(a.full_every)]
if a.one_group_of:
    models.append(Model(len(models), a.one_group_of, [OFF]))
try:
    with open(a.output, "w") as output:
        for start in range(1, a.starts + 1):
            order = models if start % 2 else models[::-1]
            for at in range(0, len(order), 2):
                for model in order[at:at + 2]:
                    model.start()
                for model in order[at:at + 2]:
                    model.wait()
            for concurrency in a.concurrency if start % 2 else a.concurrency[::-1]:
                for model in order:
                    point = model.point(start, concurrency)
                    output.write(json.dumps(point) + "\n")
                    output.flush()
                    print(f"start {start}, concurrency {concurrency:>2}, {point['groups']:>2} groups: "
                          f"ITL {point['median_itl_ms']:.3f} ms, TPOT {point['median_tpot_ms']:.3f} ms, "
                          f"TTFT {point['median_ttft_ms']:.3f} ms", flush=True)
            for model in order:
                model.stop()
finally:
    for model in list(running):
        model.stop()
