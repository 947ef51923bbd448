#!/usr/bin/env python3
"""aiconfigurator 0.12 and `k3plan predict` on the same measured serving points: who answers, how far off, how long it takes.

    scripts/compare-aiconfigurator.py [POINTS.csv]     (default: tests/golden/serving-points.csv)

aiconfigurator is installed, version pinned, into target/compare-aiconfigurator; after that nothing is fetched (sockets
are refused while it runs). It is asked as its command `cli estimate` asks, aggregated serving, with the version of its
tables pinned. "as the table says" takes names and formats from the row; "helped" asks again, where that was refused,
with the name of the config that the package holds and then with formats that it infers. "its step in ours" puts the
decode step that aiconfigurator computes (`static_gen`) where k3plan's weights, experts, KV, kernels and all-reduces
were, and leaves the rest of k3plan's estimate: what a better device part would bring.
The wheel's own systems/silicon_sample.csv is never read.
"""
import argparse
import csv
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.12.0"
TABLES = "0.24.0"
# Names of configs that the package holds, for the table's.
PACKAGED = {
    "meta-llama/Llama-3.1-70B": "meta-llama/Meta-Llama-3.1-70B",
    "nvidia/Llama-3.1-8B-Instruct-FP8": "meta-llama/Meta-Llama-3.1-8B",
}
DEVICE = ["weights", "experts", "kv", "kernels", "all-reduce"]


def ask(points):
    """In the venv: a JSON line a row."""
    import logging
    import socket
    import warnings

    logging.disable(logging.CRITICAL)
    warnings.filterwarnings("ignore")

    def refuse(*_args, **_named):
        raise OSError("offline")

    socket.socket.connect = refuse
    socket.getaddrinfo = refuse
    from aiconfigurator.cli.api import cli_estimate

    def number(row, key):
        return int(row[key]) if row.get(key) and int(row[key]) > 0 else None

    def estimate(row, mode, name, formats):
        started = time.perf_counter()
        answer = cli_estimate(
            name, row["system"], mode=mode, backend_name="vllm", backend_version=TABLES,
            isl=int(row["isl"]), osl=int(row["osl"]), batch_size=int(row["batch_size"]),
            tp_size=int(row["tp_size"]), pp_size=number(row, "pp_size") or 1,
            attention_dp_size=number(row, "attention_dp_size") or 1,
            moe_tp_size=number(row, "moe_tp_size"), moe_ep_size=number(row, "moe_ep_size"),
            gemm_quant_mode=(formats and row["gemm_quant_mode"]) or None,
            moe_quant_mode=(formats and row["moe_quant_mode"]) or None)
        return answer, (time.perf_counter() - started) * 1e3

    for row in csv.DictReader(open(points, encoding="utf-8")):
        name = row["model_path"]
        line = {"id": row["id"]}
        ways = [("plain", name, True), ("helped", PACKAGED.get(name, name), True), ("helped", PACKAGED.get(name, name), False)]
        for kind, name, formats in ways:
            try:
                answer, ms = estimate(row, "agg", name, formats)
            except Exception as error:  # whatever it raises for what it does not know
                line.setdefault("why", f"{type(error).__name__}: {error}"[:120])
                continue
            line |= {"kind": kind, "tpot": answer.tpot, "ttft": answer.ttft, "ms": ms}
            try:
                line["step"] = estimate(row, "static_gen", name, formats)[0].tpot
            except Exception as error:
                line["why"] = f"step alone: {type(error).__name__}: {error}"[:120]
            break
        print(json.dumps(line), flush=True)


def run_aiconfigurator(points):
    folder = ROOT / "target" / "compare-aiconfigurator"
    python = folder / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    installed = subprocess.run([python, "-m", "pip", "show", "-q", "aiconfigurator"], capture_output=True, check=False)
    if installed.returncode != 0:
        pins = [f"aiconfigurator=={VERSION}", f"aiconfigurator-core=={VERSION}"]
        subprocess.run([python, "-m", "pip", "install", "-q", *pins], check=True)
    environment = {**os.environ, "HF_HUB_OFFLINE": "1"}
    out = subprocess.run([python, __file__, "--ask", points], check=True, capture_output=True, text=True, env=environment)
    return {line["id"]: line for line in map(json.loads, out.stdout.splitlines())}


def run_k3plan(binary, points, *arguments):
    started = time.perf_counter()
    out = subprocess.run([binary, "predict", points, "--json", *arguments], check=True, capture_output=True, text=True)
    seconds = time.perf_counter() - started
    found = json.loads(out.stdout)["points"]
    return {point["id"]: point for point in found}, seconds * 1e3 / len(found)


def off(predicted, measured):
    return abs(predicted / measured - 1)


def percent(values, of):
    return f"{100 * of(values):.1f}%" if values else "-"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="?", default=ROOT / "tests/golden/serving-points.csv")
    parser.add_argument("--k3plan", default=ROOT / "target/release/k3plan", help="the binary; built where it is not there")
    parser.add_argument("--ask", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        return ask(arguments.points)
    if not Path(arguments.k3plan).exists():
        subprocess.run(["cargo", "build", "--release", "--quiet"], cwd=ROOT, check=True)
    rows = list(csv.DictReader(open(arguments.points, encoding="utf-8")))
    theirs = run_aiconfigurator(arguments.points)
    defaults, _ = run_k3plan(arguments.k3plan, arguments.points, "--calibration", "none")
    left_out, _ = run_k3plan(arguments.k3plan, arguments.points, "--leave-out", "model")
    ms = min(run_k3plan(arguments.k3plan, arguments.points, "--calibration", "none")[1] for _ in range(3))

    tpot = {row["id"]: float(row["silicon_tpot_ms"]) for row in rows}
    ttft = {row["id"]: float(row["silicon_ttft_ms"]) for row in rows}
    plain = {name: line for name, line in theirs.items() if line.get("kind") == "plain"}
    helped = {name: line for name, line in theirs.items() if "kind" in line}
    ours = lambda found: {name: (p["predicted_tpot_ms"], p["predicted_ttft_ms"]) for name, p in found.items()}
    ai = lambda found: {name: (line["tpot"], line["ttft"]) for name, line in found.items()}
    inside = {}
    for name, line in helped.items():
        if "step" in line:
            parts = defaults[name]["step_ms"]
            rest = sum(value for part, value in parts.items() if part not in DEVICE)
            inside[name] = (line["step"] + rest, None)
    call = f"{statistics.median(line['ms'] for line in helped.values()):.1f} ms" if helped else "-"
    own = f"{ms:.2f} ms"
    tools = [
        ("aiconfigurator, as the table says", ai(plain), call),
        ("aiconfigurator, helped", ai(helped), call),
        ("its step in ours, helped", inside, "-"),
        ("k3plan, defaults only", ours(defaults), own),
        ("k3plan, model left out", ours(left_out), own),
    ]

    def table(title, names, without=()):
        print(f"| {title} | answered | TPOT median | mean | TTFT median | a call |\n|---|---|---|---|---|---|")
        for label, found, call in tools:
            if label in without:
                continue
            known = [name for name in names if name in found]
            between = [off(found[name][0], tpot[name]) for name in known]
            first = [off(found[name][1], ttft[name]) for name in known if found[name][1]]
            print(f"| {label} | {len(known)} of {len(names)} | {percent(between, statistics.median)} "
                  f"| {percent(between, statistics.fmean)} | {percent(first, statistics.median)} | {call} |")
        print()

    everything = [row["id"] for row in rows]
    table("all rows", everything)
    table("rows that both answer, as the table says", [name for name in everything if name in plain], [tools[1][0]])
    table("rows that both answer, helped", [name for name in everything if name in helped], [tools[0][0]])
    print("| model on system | rows | answered (helped) | aiconfigurator TPOT median | k3plan defaults | model left out |\n|---|---|---|---|---|---|")
    groups = {}
    for row in rows:
        groups.setdefault((row["model_path"], row["system"]), []).append(row["id"])
    for (model, system), names in sorted(groups.items()):
        cell = lambda found: percent([off(found[n][0], tpot[n]) for n in names if n in found], statistics.median)
        count = f"{sum(n in plain for n in names)} ({sum(n in helped for n in names)})"
        print(f"| {model} on {system} | {len(names)} | {count} | {cell(ai(helped))} | {cell(ours(defaults))} | {cell(ours(left_out))} |")
    reasons = {}
    for line in theirs.values():
        if line.get("kind") != "plain":
            reason = line.get("why", "").split(" at ")[0][:90]
            reasons[reason] = reasons.get(reason, 0) + 1
    print("\nnot answered as the table says:", file=sys.stderr)
    for reason, count in sorted(reasons.items(), key=lambda item: -item[1]):
        print(f"{count:4} {reason}", file=sys.stderr)


if __name__ == "__main__":
    main()
