#!/usr/bin/env bash
# ask_versions.sh PYTHON TREES CASES.json OUT.jsonl VERSION...: ask the given vLLM versions the same planning cases.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd); w=$(mktemp -d); trap 'rm -rf "$w"' EXIT
v=$1; trees=$2; cases=$3; out=$4; shift 4
answers=()
for version in "$@"; do
  PYTHONPATH="$trees/$version" "$v" "$here/oracle.py" "$cases" "$version" > "$w/$version.json" 2> "$w/err" || { tail -3 "$w/err"; exit 1; }
  answers+=("$w/$version.json")
done
python3 "$here/pack.py" "${answers[@]}" > "$out"
