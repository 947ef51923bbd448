#!/usr/bin/env python3
"""Do `vllm bench serve` and `k3plan bench serve` measure the same on a real server?

bench-side-by-side.py --vllm PYTHON [--k3plan target/release/k3plan] [--pairs 40] [--max-concurrency 1] [--keep DIR]

One tiny model (tests/live/tiny.py) is served on the CPU, or --url names a server that is up (then --tokenizer too).
Both clients send the same load in turn, which of them first changes from pair to pair, each pair and load with a seed
of its own so that no prompt is in the cache. Printed are the medians over runs; the median of the pairs' ratios
(`differ`) with its standard error; the ratio of the medians; and the noise: how far one client's own runs lie apart
(standard deviation). Exit 1 when TTFT, TPOT or ITL differ by more than --within percent, token counts differ or a
request failed. Then vLLM's own readers take k3plan's results: its sweep plots, the records of its benchmark dashboard
and its timeline (drawn where seaborn and plotly are installed).

What both send must be the same: vLLM's client sends text, which the server cuts into tokens, so k3plan does too
(--prompts-as text; `--prompts-as ids` shows what that costs). And what both send must reach the server alike: requests
that a client sends at once leave vLLM's one after the other, about a millisecond apart, and k3plan's within a tenth of
that. A wave of four then meets the scheduler as one and three, or as four: another schedule, not another measurement.
So loads are one request at a time (--max-concurrency 1), and even arrivals at a rate (--rates, a part of what the
server can do), where nothing hangs on how fast a client sends two. `--max-concurrency 4` shows the difference.

What is left is the client's own work between its clock and the server. `--mock` names a server that answers after
exactly 50 ms (target/release/examples/mock_server): there both clients' own part of TTFT is measured and printed.

A run is short and there are many, so that the machine's slow changes meet both alike; vLLM's client is one process
that calls its command line's own `main` once a run, since loading it takes longer than a run.

vLLM pins the engine to the first cores it may use, less one that it leaves to the API server. Clients are kept to
the last core (--client-cpus), away from the engine, so that a client's own appetite does not slow what it measures.
On a shared machine run all of it under `chrt -r 5`, or the neighbours are what is measured.
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
p.add_argument("--k3plan", default=str(ROOT / "target/release/k3plan"))
p.add_argument("--url", help="a server that is up, instead of starting one")
p.add_argument("--model", default="tiny", help="name that the server knows the model by")
p.add_argument("--tokenizer", help="folder with the tokenizer, with --url")
p.add_argument("--layers", type=int, default=24)
p.add_argument("--port", type=int, default=8321)
p.add_argument("--pairs", type=int, default=40)
p.add_argument("--max-concurrency", type=int, nargs="*", default=[1], help="loads, each compared by itself")
p.add_argument("--rates", type=float, nargs="*", default=[1.0], help="requests a second, evenly: further loads")
p.add_argument("--waves", type=int, default=4, help="prompts of a run, in multiples of its concurrency")
p.add_argument("--rate-prompts", type=int, default=12, help="prompts of a run at a rate")
p.add_argument("--input-len", type=int, default=1024)
p.add_argument("--output-len", type=int, default=32)
p.add_argument("--prompts-as", choices=["text", "ids"], default="text", help="of k3plan; vLLM's client sends text")
p.add_argument("--mock", help="mock_server: each client's own part of TTFT against a server that answers in 50 ms")
p.add_argument("--first-seed", type=int, default=1)
p.add_argument("--client-cpus", default=str(max(os.sched_getaffinity(0))), help="'' for all")
p.add_argument("--within", type=float, default=3.0, metavar="PERCENT")
p.add_argument("--keep", help="folder for the results")
a = p.parse_args()

FIGURES = ["median_ttft_ms", "median_tpot_ms", "median_itl_ms"]
work = pathlib.Path(a.keep or tempfile.mkdtemp())
work.mkdir(parents=True, exist_ok=True)
env = dict(os.environ, HF_HUB_OFFLINE="1", VLLM_NO_USAGE_STATS="1", VLLM_CPU_KVCACHE_SPACE="1")


def serve():
    made = [a.vllm, str(ROOT / "tests/live/tiny.py"), str(work / "model"), "--layers", str(a.layers)]
    subprocess.run(made, check=True, capture_output=True)
    command = [a.vllm, "-m", "vllm.entrypoints.openai.api_server", "--host=127.0.0.1", f"--port={a.port}",
               f"--model={work / 'model'}", f"--served-model-name={a.model}", "--load-format=dummy",
               "--max-model-len=4096", "--max-num-seqs=16", "--enforce-eager"]
    with open(work / "server.log", "w") as log:
        server = subprocess.Popen(command, env=env, stdout=log, stderr=log, start_new_session=True)
    for _ in range(240):
        try:
            urllib.request.urlopen(f"{url}/health", timeout=2)
            return server
        except OSError:
            if server.poll() is not None:
                sys.exit(f"the server ended: see {work / 'server.log'}")
            time.sleep(1)
    os.killpg(server.pid, signal.SIGTERM)
    sys.exit("the server did not answer within 240 s")


# Answers a line of arguments with a line that says whether the run came to its end.
DRIVER = """
import contextlib, json, os, sys, traceback
from vllm.benchmarks.serve import add_cli_args, main
from vllm.utils.argparse_utils import FlexibleArgumentParser
answers = os.fdopen(os.dup(1), "w")
os.dup2(2, 1)
for line in sys.stdin:
    parser = FlexibleArgumentParser()
    add_cli_args(parser)
    try:
        main(parser.parse_args(json.loads(line)))
        print("done", file=answers, flush=True)
    except BaseException:
        traceback.print_exc()
        print("failed", file=answers, flush=True)
"""


def pinned(command):
    on = ["taskset", "-c", a.client_cpus] if a.client_cpus and shutil.which("taskset") else []
    return on + [str(word) for word in command]


def requests(load):
    kind, size = load
    return a.waves * size if kind == "concurrency" else a.rate_prompts


def client(name, load, seed, tag, at=None, model=None, count=None):
    """One run: the result as it lies in the file."""
    at, (kind, size) = at or url, load
    shape = ["--max-concurrency", size] if kind == "concurrency" else ["--request-rate", size, "--burstiness", "inf"]
    load = ["--model", model or a.model, "--random-input-len", a.input_len, "--random-output-len", a.output_len,
            "--num-prompts", count or requests(load), *shape, "--ignore-eos", "--temperature", 0, "--seed", seed]
    if name == "vllm":
        words = ["--backend", "openai", "--base-url", at, "--tokenizer", tokenizer, "--dataset-name", "random",
                 "--percentile-metrics", "ttft,tpot,itl,e2el", "--save-result", "--save-detailed", "--disable-tqdm",
                 "--result-dir", work, "--result-filename", f"vllm-{tag}.json"]
        driver.stdin.write(json.dumps([str(word) for word in words + load]) + "\n")
        driver.stdin.flush()
        if driver.stdout.readline().strip() != "done":
            sys.exit(f"vllm bench serve failed: see {work / 'vllm.log'}")
    else:
        form = "ids" if at != url else a.prompts_as  # The mock cuts no text.
        command = [a.k3plan, "bench", "serve", "--url", at, "--output", work / f"k3plan-{tag}.json",
                   "--prompts-as", form, *load]
        done = subprocess.run(pinned(command), env=env, capture_output=True, text=True)
        if done.returncode:
            sys.exit(f"k3plan ended with {done.returncode}: {done.stderr[-2000:]}")
    return json.loads((work / f"{name}-{tag}.json").read_text())


def spread(values):
    """Standard deviation of a client's runs, in percent of their mean."""
    return statistics.stdev(values) / statistics.mean(values) * 100 if len(values) > 1 else float("nan")


def compare(load):
    """The table of one load; whether all of it holds."""
    theirs, ours = (runs[load, name] for name in CLIENTS)
    good = True
    print(f"\n{load[0]} {load[1]}, {len(ours)} pairs of {requests(load)} requests, "
          f"{a.input_len} tokens in and {a.output_len} out, k3plan sends {a.prompts_as}")
    print(f"{'':<16} {'vllm':>9} {'k3plan':>9} {'differ':>8} {'error':>7} {'medians':>9} {'noise vllm':>11} {'noise k3plan':>13}")
    for figure in FIGURES + ["median_e2el_ms"]:
        x, y = ([run[figure] for run in each] for each in (theirs, ours))
        # Pair by pair, so that what slows the machine for a minute slows both.
        ratios = sorted(b / a for a, b in zip(x, y))
        off = statistics.median(ratios) * 100 - 100
        of_medians = statistics.median(y) / statistics.median(x) * 100 - 100
        # The quartiles lie 1.35 standard deviations apart, and medians scatter 1.25 times as much as means.
        low, _, high = statistics.quantiles(ratios) if len(ratios) > 1 else [float("nan")] * 3
        error = 1.25 * (high - low) / 1.35 / len(x) ** 0.5 * 100
        held = figure not in FIGURES or abs(off) <= a.within
        good &= held
        print(f"{figure:<16} {statistics.median(x):>9.3f} {statistics.median(y):>9.3f} {off:>+7.2f}% {error:>6.2f}% {of_medians:>+8.2f}% "
              f"{spread(x):>10.2f}% {spread(y):>12.2f}%{'' if held else '  TOO FAR'}")
    count = requests(load)
    keys = ["completed", "failed", "total_input_tokens", "total_output_tokens"]
    counts = [{tuple(run[key] for key in keys) for run in each} for each in (theirs, ours)]
    good &= counts == [{(count, 0, count * a.input_len, count * a.output_len)}] * 2
    print(f"completed, failed, tokens in and out of every run: vllm {counts[0]}, k3plan {counts[1]}")

    def apart(run):
        """Milliseconds between the first and the last start of a wave."""
        starts = sorted(run["start_times"])
        waves = [starts[i:i + load[1]] for i in range(0, len(starts), load[1])]
        return statistics.median((max(wave) - min(wave)) * 1000 for wave in waves)

    if load[0] == "concurrency" and load[1] > 1:
        spreads = [statistics.median(map(apart, each)) for each in (theirs, ours)]
        print("a wave's requests leave within ms (median): vllm {:.2f}, k3plan {:.2f}".format(*spreads))
    return good


def own_part():
    """What each client adds to the TTFT of a server that answers after exactly 50 ms, in ms."""
    mock = subprocess.Popen([a.mock, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        at = mock.stdout.readline().strip()
        for turn, name in enumerate(CLIENTS * 3):
            run = client(name, ("concurrency", 1), 7, f"mock-{turn}", at, "timed", 20)
            print(f"own part of TTFT against the mock, {name}: {run['median_ttft_ms'] - 50:.3f} ms", flush=True)
    finally:
        mock.terminate()


def read_by_vllm():
    """What vLLM makes of k3plan's files: one line a reader."""
    sweep = work / "sweep"
    sweep.mkdir(exist_ok=True)
    (sweep / "summary.json").write_text(json.dumps([run for each in runs.values() for run in each]))
    found = subprocess.run([a.vllm, "-c", "import matplotlib, seaborn"], capture_output=True).returncode == 0
    plot = [a.vllm, "-m", "vllm.entrypoints.cli.main", "bench", "sweep", "plot", str(sweep), "--var-x",
            "total_token_throughput", "--var-y", "median_ttft_ms", "--curve-by", "backend,max_concurrency,request_rate"]
    done = subprocess.run(plot + ([] if found else ["--dry-run"]), env=env, capture_output=True, text=True)
    figures = len(list(sweep.glob("*.png")))
    drawn = f"{figures} figure drawn" if found else "dry run, seaborn is not installed"
    print(f"vllm bench sweep plot: exit {done.returncode}, {drawn}")
    if done.returncode:
        print(done.stderr[-1500:])
    code = """
import argparse, json, pathlib, sys
from vllm.benchmarks.serve import save_to_pytorch_benchmark_format
from vllm.benchmarks.plot import construct_timeline_data, generate_timeline_plot
path = pathlib.Path(sys.argv[1])
result = json.loads(path.read_text())
empty = argparse.Namespace(model=result["model_id"], compilation_config=None, optimization_level=None)
save_to_pytorch_benchmark_format(empty, result, str(path))
records = json.loads(path.with_suffix(".pytorch.json").read_text())
print(f"dashboard: {len(records)} records")
keys = dict(start_time="start_times", ttft="ttfts", itl="itls", latency="latencies", prompt_len="input_lens",
            output_tokens="output_lens")
requests = [{key: result[name][i] for key, name in keys.items()} for i in range(result["num_prompts"])]
print("timeline:", len(construct_timeline_data(requests, [0.025, 0.05], ["a", "b", "c"])), "segments")
try:
    import plotly
except ImportError:
    sys.exit()
page = path.with_suffix(".html")
generate_timeline_plot(requests, page)
"""
    last = work / f"k3plan-{named(loads[-1])}-{a.pairs - 1}.json"
    again = subprocess.run([a.vllm, "-c", code, str(last)], env=dict(env, SAVE_TO_PYTORCH_BENCHMARK_FORMAT="1"),
                           capture_output=True, text=True)
    print(again.stdout.strip() or again.stderr[-1500:])
    return done.returncode == 0 and again.returncode == 0


url = a.url or f"http://127.0.0.1:{a.port}"
server = None if a.url else serve()
tokenizer = a.tokenizer or str(work / "model")
CLIENTS = ["vllm", "k3plan"]
loads = [("concurrency", size) for size in a.max_concurrency] + [("rate", rate) for rate in a.rates]
runs = {(load, name): [] for load in loads for name in CLIENTS}
log = open(work / "vllm.log", "w")
driver = subprocess.Popen(pinned([a.vllm, "-c", DRIVER]), env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                          stderr=log, text=True)


def named(load):
    return f"{load[0]}-{load[1]:g}"


try:
    for load, name in runs:
        client(name, load, 0, f"{named(load)}-warm")
    if a.mock:
        own_part()
    for pair in range(a.pairs):
        for load in loads:
            for name in CLIENTS[:: 1 if pair % 2 == 0 else -1]:
                seed = (a.first_seed + pair) * len(loads) + loads.index(load)
                run = client(name, load, seed, f"{named(load)}-{pair}")
                runs[load, name].append(run)
                print(f"pair {pair}, {named(load)}, {name}: TTFT, TPOT, ITL ms "
                      + " ".join(f"{run[figure]:.3f}" for figure in FIGURES), flush=True)
finally:
    driver.stdin.close()
    driver.wait()
    if server:
        os.killpg(server.pid, signal.SIGTERM)
        server.wait()

good = all([compare(load) for load in loads])
first = [runs[loads[0], name][0] for name in CLIENTS]
missing = sorted(set(first[0]) - set(first[1]))
good &= not missing
print("\nkeys of vLLM that k3plan's file lacks:", missing or "none")
good &= read_by_vllm()
sys.exit(0 if good else 1)
