#!/usr/bin/env bash
# Block-table and slot-mapping work: this project's kernels on the CPU against vLLM's NumPy paths, same shapes.
#
# compare-block-tables.sh PYTHON    a Python that has vLLM (0.24 or later) and NumPy
# Exit code 1 where a path is less than 20 times as fast.
set -euo pipefail
python=${1:?usage: compare-block-tables.sh PYTHON}
cd "$(dirname "$0")/.."
cargo build -q --release -p k3plan-executor --example block_tables
target=${CARGO_TARGET_DIR:-target}
"$python" scripts/compare_block_tables.py "$target/release/examples/block_tables"
