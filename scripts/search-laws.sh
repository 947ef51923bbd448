#!/usr/bin/env bash
# Tries the laws (proptest) on cases that no run has seen: ROUNDS times, each with a seed of its own.
#
#     scripts/search-laws.sh [ROUNDS] [CASES]     (default: 10 rounds of 1000 cases a law; 5 minutes a round)
#
# Stops at the first law that breaks; proptest prints its smallest case, and the seed to try it again.
set -euo pipefail
cd "$(dirname "$0")/.."
rounds=${1:-10}
export PROPTEST_CASES=${2:-1000}
# Every test binary that holds a law.
laws=(
  "--package k3plan-planner --test laws --test log"
  "--package k3plan-simulator --test cost --test classes --test laws"
  "--package k3plan-executor --lib --test compare --test device"
)
for ((round = 1; round <= rounds; round++)); do
  PROPTEST_RNG_SEED=$(od -An -N7 -tu8 /dev/urandom | tr -d ' ')
  export PROPTEST_RNG_SEED
  echo "round $round of $rounds: PROPTEST_RNG_SEED=$PROPTEST_RNG_SEED PROPTEST_CASES=$PROPTEST_CASES"
  for binaries in "${laws[@]}"; do
    # shellcheck disable=SC2086
    cargo test --quiet $binaries
  done
done
