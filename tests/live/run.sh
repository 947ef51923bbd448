#!/usr/bin/env bash
# run.sh INSTALL [short | NAME..]: is k3plan right about a vLLM that really serves?
#
# INSTALL is the folder that scripts/live-vllm.sh filled (or that of a virtual environment with vLLM). For each tiny
# model a server is started with the plugin, until it answers; then `k3plan verify` holds k3plan to what the server
# planned, `plan` and `explain` take the dump as a scenario, and `import log` finds in the server's log what the dump
# says, beside the dump and beside the model's config. `short`: three models instead of all.
# NAME: only these.
#
# K3PLAN: the command (default: cargo run). K3PLAN_LIVE_PORT: the first port (default 8311).
# K3PLAN_LIVE_KEEP: a file that the dumps are appended to.
set -euo pipefail
install=${1:?usage: run.sh INSTALL [short | NAME..]}
shift
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
python=$install/v/bin/python
[ -x "$python" ] || python=$install/bin/python
[ -x "$python" ] || { echo "run.sh: there is no bin/python in $install or $install/v" >&2; exit 2; }
if [ -z "${K3PLAN:-}" ]; then
  cargo build --quiet --manifest-path "$root/Cargo.toml"
  K3PLAN=$root/target/debug/k3plan
fi
work=$(mktemp -d)
server=
stop() {
  # The server leads a process group of its own: the engine core and the workers end with it.
  [ -z "$server" ] || { kill -- "-$server" 2>/dev/null || true; wait "$server" 2>/dev/null || true; server=; }
}
trap 'stop; rm -rf "$work"' EXIT

# The plugin goes into a folder of its own, so that the environment stays as it is.
cp -r "$root/integrations/vllm" "$work/source"
"$python" -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation --no-index \
  --target "$work/site" "$work/source" >&2

# name | what tiny.py makes | options of the server
cases=(
  "llama|--arch llama --layers 4|"
  "gemma-5to1|--layers 12 --full-every 6 --window 512|"
  "conv-state|--arch lfm2 --layer-types s,s,f,s,f,s|"
  "gemma-1to1|--layers 8 --full-every 2 --window 256|"
  "gemma-odd|--layer-types s,s,s,s,s,f,s,s,f,s --window 128|"
  "gemma-all-sliding|--layers 6 --full-every 7 --window 512|"
  "gemma-no-hybrid|--layers 12 --full-every 6 --window 512|--disable-hybrid-kv-cache-manager"
  "gemma-override|--layers 7 --full-every 3 --window 1024|--num-gpu-blocks-override 300"
  "gemma-auto-length|--layers 24 --full-every 4 --window 512|--max-model-len -1"
  "llama-auto-length|--arch llama --layers 32|--max-model-len -1 --num-gpu-blocks-override 100"
  "gemma-no-cache|--layers 9 --full-every 5 --window 300|--no-enable-prefix-caching --block-size 32"
  "conv-align|--arch lfm2 --layer-types s,f,s,s,f,s,s,s|--enable-prefix-caching --mamba-cache-mode align"
  "gemma-synchronous|--layers 10 --full-every 3 --window 4000|--no-async-scheduling --max-num-batched-tokens 512"
  "gemma-draft|--layers 6 --full-every 3 --window 512|--speculative-config {\"method\":\"ngram\",\"num_speculative_tokens\":3}"
  "gemma-no-window|--layers 10 --full-every 5 --window 1024|--disable-sliding-window --max-model-len 1024"
  "gemma-overrides|--layers 9 --full-every 3 --window 512|--hf-overrides {\"sliding_window\":96,\"num_key_value_heads\":1}"
  "gemma-two-ranks|--layers 11 --full-every 4 --window 256|--tensor-parallel-size 2"
)
if [ "${1:-}" = short ]; then cases=("${cases[@]:0:3}"); shift; fi
chosen=" $* "

export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 PYTHONPATH=$work/site
port=${K3PLAN_LIVE_PORT:-8311} passed=0 failed=0
printf '%-20s %7s %7s %8s %12s  %s\n' model layers groups blocks concurrency result
for case in "${cases[@]}"; do
  IFS='|' read -r name make options <<<"$case"
  [ $# = 0 ] || [[ $chosen == *" $name "* ]] || continue
  # shellcheck disable=SC2086 # several words
  "$python" "$here/tiny.py" "$work/$name" $make 2>"$work/log"
  length=(--max-model-len 4096)
  [[ $options == *--max-model-len* ]] && length=()
  # Threads of two ranks cannot be bound to the cores of one NUMA node.
  bind=auto
  [[ $options == *--tensor-parallel-size* ]] && bind=nobind
  # shellcheck disable=SC2086
  K3PLAN_DUMP=$work/$name.jsonl K3PLAN_DUMP_ID=$name VLLM_CPU_OMP_THREADS_BIND=$bind setsid "$python" -m vllm.entrypoints.openai.api_server \
    --host 127.0.0.1 --port "$port" --model "$work/$name" --load-format dummy --enforce-eager --max-num-seqs 16 \
    "${length[@]}" $options >"$work/log" 2>&1 &
  server=$!
  up=no
  for _ in $(seq 400); do
    kill -0 "$server" 2>/dev/null || break
    if "$python" -S -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2>/dev/null
    then up=yes; break; fi
    sleep 1
  done
  stop
  if [ $up = no ]; then
    result="FAILED: the server did not answer; the end of its log:"$'\n'$(tail -n 15 "$work/log")
  else
    result=$("$python" "$here/hold.py" "$K3PLAN" "$work/$name.jsonl" "$work/log" "$work/$name") || true
  fi
  shape=${result%%$'\n'*}
  case $result in
    *$'\n'passed) passed=$((passed + 1)); printf '%-20s %s  passed\n' "$name" "$shape"
      [ -z "${K3PLAN_LIVE_KEEP:-}" ] || cat "$work/$name.jsonl" >>"$K3PLAN_LIVE_KEEP" ;;
    *) failed=$((failed + 1)); printf '%-20s %s\n' "$name" "$result" ;;
  esac
done
echo "$passed passed, $failed failed"
[ "$failed" = 0 ]
