#!/usr/bin/env python3
"""Lay load generators side by side: what a token costs each in CPU, and how far its times are from the true ones.

bench-clients.py --mock target/release/examples/mock_server --k3plan target/release/k3plan --tokenizer DIR
    [--vllm PYTHON] [--guidellm PROGRAM] [--aiperf PROGRAM] [--streams 32 128 1000] [--repeats 3]

One local mock server (`cargo build --release --example mock_server -p k3plan-executor`) serves all of them; no
traffic leaves the loopback. Cost: the model `fast` streams as fast as it is read; each client is run with few and
with many tokens, and the difference in tokens over the difference in CPU time leaves its start-up out. Truth: the
model `timed` sends the first token 50 ms after the request arrived and one every 10 ms after that, and tells how
late it was itself, so that a busy machine is not taken for a wrong client. Own part: `stamped` is `timed` with the time
of sending as each token's text, so that what k3plan's times add is known token by token; beside it how long bytes lay
until they were read, as k3plan reports it. For it the mock has one core and the client the others.
"""
import argparse
import itertools
import json
import os
import pathlib
import resource
import statistics
import subprocess
import tempfile

p = argparse.ArgumentParser()
p.add_argument("--mock", required=True)
p.add_argument("--k3plan", required=True)
p.add_argument("--tokenizer", required=True)
p.add_argument("--vllm")
p.add_argument("--guidellm")
p.add_argument("--aiperf")
p.add_argument("--streams", type=int, nargs="+", default=[32, 128, 1000])
p.add_argument("--repeats", type=int, default=3)
p.add_argument("--only", choices=["cost", "own", "truth"])
a = p.parse_args()

cores = sorted(os.sched_getaffinity(0))
mock = subprocess.Popen([a.mock, "0"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
url = mock.stdout.readline().strip()


def apart(are_apart):
    """Keep the mock to the first core and clients to the others, so that neither waits for the other's core."""
    few = are_apart and len(cores) > 1
    for task in os.listdir(f"/proc/{mock.pid}/task"):
        os.sched_setaffinity(int(task), cores[:1] if few else cores)
    os.sched_setaffinity(0, cores[1:] if few else cores)


def lateness():
    mock.stdin.write("\n")
    mock.stdin.flush()
    return mock.stdout.readline().strip()


def run(command, cwd=None, **more):
    """CPU seconds of a command and all that it waited for."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    env = dict(os.environ, HF_HUB_OFFLINE="1", TRANSFORMERS_OFFLINE="1",) | more
    done = subprocess.run(command, env=env, cwd=cwd, capture_output=True, text=True, timeout=900)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    if done.returncode:
        raise RuntimeError(f"{command[0]} ended with {done.returncode}: {done.stderr[-600:]}{done.stdout[-300:]}")
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def vllm_like(path):
    d = json.loads(pathlib.Path(path).read_text())
    return d["completed"], d["total_output_tokens"], d["median_ttft_ms"], d["median_itl_ms"]


def k3plan(model, streams, requests, tokens, folder):
    out = f"{folder}/k.json"
    cpu = run([a.k3plan, "bench", "serve", "--url", url, "--model", model, "--num-prompts", str(requests),
               "--max-concurrency", str(streams), "--random-input-len", "16", "--random-output-len", str(tokens),
               "--metrics-interval", "0", "--output", out])
    return cpu, vllm_like(out)


def vllm(model, streams, requests, tokens, folder):
    cpu = run([a.vllm, "-m", "vllm.entrypoints.cli.main", "bench", "serve", "--backend", "openai", "--base-url", url,
               "--model", model, "--tokenizer", a.tokenizer, "--dataset-name", "random", "--random-input-len", "16",
               "--random-output-len", str(tokens), "--num-prompts", str(requests), "--max-concurrency", str(streams),
               "--ready-check-timeout-sec", "0", "--save-result", "--result-dir", folder,
               "--result-filename", "v.json"])
    return cpu, vllm_like(f"{folder}/v.json")


def guidellm(model, streams, requests, tokens, folder):
    cpu = run([a.guidellm, "run", "--backend", f"kind=openai_http,target={url},model={model}",
               "--profile", f"kind=concurrent,streams={streams}", "--constraint", f"kind=max_requests,count={requests}",
               "--tokenizer", f"kind=huggingface_auto,model={a.tokenizer}",
               "--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={tokens}",
               "--output", f"kind=json,path={folder}/g.json", "--disable-console"])
    d = json.loads(pathlib.Path(folder, "g.json").read_text())["benchmarks"][0]["metrics"]
    good = "successful"
    return cpu, (d["request_totals"][good], d["output_token_count"][good]["total_sum"],
                 d["time_to_first_token_ms"][good]["median"], d["inter_token_latency_ms"][good]["median"])


def aiperf(model, streams, requests, tokens, folder):
    # A path with a slash is a name at the hub to it, and so is any when offline (any value is, "0" too): the folder
    # is named from beside it, and the variables are empty.
    tokenizer = pathlib.Path(a.tokenizer).resolve()
    cpu = run([a.aiperf, "profile", "--model", model, "--url", url, "--endpoint-type", "completions", "--streaming",
               "--concurrency", str(streams), "--request-count", str(requests), "--tokenizer", tokenizer.name,
               "--isl", "16", "--osl", str(tokens), "--extra-inputs", "ignore_eos:true", "--ui", "none",
               "--artifact-dir", folder], cwd=tokenizer.parent,
              HF_HUB_OFFLINE="", TRANSFORMERS_OFFLINE="")
    found = next(pathlib.Path(folder).rglob("profile_export_aiperf.json"))
    d = json.loads(found.read_text())
    return cpu, (d["request_count"]["avg"], requests * tokens, d["time_to_first_token"]["p50"],
                 d["inter_token_latency"]["p50"])


clients = {"k3plan": k3plan}
clients |= {name: globals()[name] for name in ["vllm", "guidellm", "aiperf"] if getattr(a, name)}


def added(streams, requests, tokens):
    """What k3plan's own times have that the mock's have not: each token's text is the time at which it was sent."""
    with tempfile.TemporaryDirectory() as folder:
        out = f"{folder}/k.json"
        run([a.k3plan, "bench", "serve", "--url", url, "--model", "stamped", "--num-prompts", str(requests),
             "--max-concurrency", str(streams), "--random-input-len", "16", "--random-output-len", str(tokens),
             "--metrics-interval", "0", "--keep-texts", "--output", out])
        d = json.loads(pathlib.Path(out).read_text())
    late = []
    for start, ttft, gaps, text in zip(d["start_times"], d["ttfts"], d["itls"], d["generated_texts"]):
        received = itertools.accumulate(gaps, initial=start + ttft)
        late += [at - int(sent) / 1e9 for at, sent in zip(received, text.split(), strict=True)]
    late.sort()
    # Two clocks with two zeros: the quickest token is taken for one that took no time.
    at = [(late[int((len(late) - 1) * share)] - late[0]) * 1e3 for share in (0.5, 0.99, 1)]
    lag = [d["k3plan"]["client"][f"read_lag_ms_{name}"] for name in ("p50", "p99", "max")]
    form = "{:.3f} ms (P50), {:.3f} ms (P99), {:.3f} ms (most)".format
    print(f"k3plan    {streams:>5} streams, {len(late)} tokens: reported after they were sent by {form(*at)}, "
          f"read and counted after they had arrived by {form(*lag)}; mock: {lateness()}", flush=True)


def attempt(name, *load):
    with tempfile.TemporaryDirectory() as folder:
        try:
            return clients[name](*load, folder)
        except Exception as error:  # One client that breaks does not hide the others.
            print(f"{name:<9} failed: {str(error)[:900]}")
            return None


try:
    if a.only in ("cost", None):
        rates = {name: [] for name in clients}
        for _ in range(a.repeats):
            for name in clients:
                # Enough that start-up, some seconds of CPU for the others, does not blur the difference.
                many = {"k3plan": 10_000, "vllm": 5_000, "guidellm": 2_000}.get(name, 1_500)
                few, more = (attempt(name, "fast", 8, 400, count) for count in (50, many))
                if few and more:
                    rates[name].append((more[1][1] - few[1][1]) / max(more[0] - few[0], 1e-3))
        for name, found in rates.items():
            if found:
                ratio = statistics.median(rates["k3plan"]) / statistics.median(found)
                print(f"{name:<9} {statistics.median(found):>12,.0f} tokens/s per core "
                      f"(of {len(found)}: {min(found):,.0f} to {max(found):,.0f}), k3plan has {ratio:.1f} times as much",
                      flush=True)
    if a.only in ("own", None):
        apart(True)
        for streams in a.streams * a.repeats:
            lateness()
            added(streams, 3 * streams, 100)
        apart(False)
    if a.only in ("truth", None):
        for streams in a.streams:
            for name in clients:
                lateness()
                result = attempt(name, "timed", streams, 3 * streams, 100)
                if result:
                    _, (completed, _, ttft, itl) = result
                    print(f"{name:<9} {streams:>5} streams: TTFT {ttft:8.3f} ms ({ttft / 50 - 1:+.2%}), "
                          f"ITL {itl:7.3f} ms ({itl / 10 - 1:+.2%}), {completed:.0f} completed; "
                          f"mock: {lateness()}", flush=True)
finally:
    mock.terminate()
