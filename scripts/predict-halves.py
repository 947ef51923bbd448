#!/usr/bin/env python3
"""How far off `k3plan predict` is on one half of a (model, system) pair's points when the other half was calibrated on.

    scripts/predict-halves.py [POINTS.csv] [--cuts 3]     (default: tests/golden/serving-points.csv)

Cuts are random (seeds 0, 1, ..; repeats of one point stay together; each half predicts the other) and by concurrency (the
lower half predicts the higher and the other way round). A fit starts from one over the other models' points, or from the
defaults. Medians of TPOT over a half; printed: their median over all halves, and the worst of them.
"""
import argparse
import csv
import json
import random
import statistics
import subprocess
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SAME = ["gemm_quant_mode", "moe_quant_mode", "backend_version", "tp_size", "moe_ep_size", "attention_dp_size", "isl", "osl", "batch_size"]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("points", nargs="?", default=ROOT / "tests/golden/serving-points.csv")
    parser.add_argument("--cuts", type=int, default=3)
    parser.add_argument("--k3plan", default=ROOT / "target/release/k3plan")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        halves(arguments, Path(folder))


def halves(arguments, folder):
    rows = list(csv.DictReader(open(arguments.points, encoding="utf-8")))

    def k3plan(*command):
        return subprocess.run([arguments.k3plan, *command], check=True, capture_output=True, text=True).stdout

    def write(name, part):
        with open(folder / name, "w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(part)
        return folder / name

    def off(seen, held, start):
        k3plan("calibrate", write("seen.csv", seen), "--start", start, "-o", folder / "half.yaml")
        found = json.loads(k3plan("predict", write("held.csv", held), "--calibration", folder / "half.yaml", "--json"))
        return found["all"]["tpot_median"]

    pairs = {}
    for row in rows:
        pairs.setdefault((row["model_path"], row["system"]), []).append(row)
    second = json.loads(k3plan("predict", arguments.points, "--leave-out", "half", "--json"))["pairs"]
    starts = {}
    print("| model on system | points | every second | random halves, worst | from the defaults, worst | by concurrency |\n|---|---|---|---|---|---|")
    for (model, system), own in sorted(pairs.items()):
        if model not in starts:
            others = [row for row in rows if row["model_path"] != model]
            starts[model] = folder / f"start{len(starts)}.yaml"
            k3plan("calibrate", write("others.csv", others), "-o", starts[model])
        same = {id(row): tuple(row.get(key) for key in SAME) for row in own}
        keys = sorted(set(same.values()))
        cuts = []
        for seed in range(arguments.cuts):
            shuffled = keys[:]
            random.Random(seed).shuffle(shuffled)
            cuts.append(set(shuffled[: len(keys) // 2]))
        ordered = sorted(keys, key=lambda key: (float(key[-1]) * float(key[5] or 1), key))
        cuts.append(set(ordered[: len(keys) // 2]))
        found = {"others": [], "none": [], "concurrency": []}
        for index, cut in enumerate(cuts):
            one = [row for row in own if same[id(row)] in cut]
            two = [row for row in own if same[id(row)] not in cut]
            for seen, held in ((one, two), (two, one)):
                if index == arguments.cuts:
                    found["concurrency"].append(off(seen, held, starts[model]))
                else:
                    found["others"].append(off(seen, held, starts[model]))
                    found["none"].append(off(seen, held, "none"))
        name = next(name for name in second if name.startswith(f"{model} on ") and system.startswith(name.split(" on ")[1]))
        cell = lambda values: f"{100 * statistics.median(values):.1f}%, {100 * max(values):.1f}%"
        ends = " and ".join(f"{100 * value:.1f}%" for value in found["concurrency"])
        print(f"| {name} | {len(own)} | {100 * second[name]['tpot_median']:.1f}% | {cell(found['others'])} | {cell(found['none'])} | {ends} |", flush=True)


if __name__ == "__main__":
    main()
