#!/usr/bin/env bash
# compare-simulators.sh [PYTHON_WITH_VLLM TINY_MODEL]: requests a second against aisimulate-core 0.13, and, where a
# Python with vLLM 0.32 and a tiny model's folder are given, steps a second against the real scheduler on the same
# recorded cases. The steps of both are timed in turns; vLLM's include the harness, which `harness` gives apart.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
cargo build --release --quiet --manifest-path "$root/scripts/compare-simulators/Cargo.toml"
run=${CARGO_TARGET_DIR:-$root/scripts/compare-simulators/target}/release/compare-simulators
"$run"
if [ $# -ge 2 ]; then
  for turn in 1 2 3; do
    ours=$("$run" steps "$root/tests/golden/schedules.jsonl.gz")
    read -r real inside < <(TINY_MODEL=$2 PYTHONPATH="$root/tests/oracle" "$1" "$root/scripts/time_real_scheduler.py" "$root/tests/golden/schedules.jsonl.gz" 2> /dev/null)
    awk -v o="$ours" -v r="$real" -v i="$inside" -v t="$turn" \
      'BEGIN { printf "turn %d: k3plan %d steps/s; vLLM %d (%.0f times less), schedule() and update_from_output() alone %d (%.0f times less)\n", t, o, r, o / r, i, o / i }'
  done
fi
