#!/usr/bin/env bash
# All checks that need a GPU, in two steps, so that the GPU machine needs neither internet nor a Rust toolchain.
#
#   scripts/on-gpu.sh pack   here: builds the command and the device tests, compiles the kernels for sm_80, sm_90
#                            and sm_100 with NVRTC (scripts/install-compilers.sh), and for gfx942 and gfx950 with
#                            clang; all into .gpu/ (about 60 MB)
#   scripts/on-gpu.sh        on the GPU machine, in a copy of this folder with .gpu/: equality with the references,
#                            bandwidth, and the table of predicted against measured, which lands in
#                            docs/device-BACKEND.md with the command that made it (or in the folder $OUT, if set)
#
# Without .gpu/ the second step builds first, which needs cargo and its packages. About 3 minutes on an H100. Exit code
# 1 where a kernel differs, or a paged read of more than a millisecond is below 85% of a plain read.
set -euo pipefail
cd "$(dirname "$0")/.."
gpu=$PWD/.gpu

pack() {
  rm -rf "$gpu"
  mkdir -p "$gpu/kernels"
  cargo build --release
  cp "${CARGO_TARGET_DIR:-target}/release/k3plan" "$gpu/k3plan"
  cargo test --release -p k3plan-executor --test device --no-run --message-format=json |
    sed -n 's/.*"name":"device".*"executable":"\([^"]*\)".*/\1/p' | tail -1 | xargs -I{} cp {} "$gpu/device-tests"
  strip "$gpu/k3plan" "$gpu/device-tests"
  [ -e .tools/nvrtc ] || scripts/install-compilers.sh
  K3PLAN_NVRTC=$PWD/.tools/nvrtc/libnvrtc.so.12 \
    cargo run -q --release -p k3plan-executor --example compile_kernels -- "$gpu/kernels" sm_80 sm_90 sm_100
  for target in gfx942 gfx950; do
    name=$(basename "$(ls "$gpu"/kernels/*.sm_90.bin)" .sm_90.bin).$target.bin
    cat kernels/csrc/{shim,numbers,block_table,slot_mapping,metadata,kv_cache_write,paged_read,probe}.h |
      grep -v '^#pragma once$' > "$gpu/kernels.hip"
    .tools/amdgcn-clang "$target" "$gpu/kernels.hip" "$gpu/kernels.o"
    .tools/amdgcn-lld "$gpu/kernels.o" "$gpu/kernels/$name"
  done
  rm -f "$gpu/kernels.hip" "$gpu/kernels.o"
  du -sh "$gpu"
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi
[ -x "$gpu/k3plan" ] || pack
export K3PLAN_KERNELS=$gpu/kernels
"$gpu/k3plan" devices
backend=cuda
if [ ! -e /dev/nvidiactl ] && [ -e /dev/kfd ]; then backend=hip; fi

echo "== every kernel equals its reference on $backend"
"$gpu/device-tests" "$backend::" --nocapture --test-threads=1 2>&1 | tee "$gpu/equality.log"
if grep -q "not run on $backend" "$gpu/equality.log"; then exit 1; fi

command="k3plan bench device kimi-k3-dspark --device $backend --requests 16 --context 65536 --memory 40 --runs 21"
echo "== $command"
scenario=kimi-k3-dspark
if ! "$gpu/k3plan" plan $scenario >/dev/null 2>&1; then scenario=scenarios/models/kimi-k3-dspark.yaml; fi
measure=("$gpu/k3plan" bench device $scenario --device "$backend" --requests 16 --context 65536 --memory 40 --runs 21)
out=${OUT:-docs}
mkdir -p "$out"
"${measure[@]}" | tee "$gpu/table.txt"
"${measure[@]}" --json > "$out/device-$backend.json"
{
  echo "# Predicted and measured on $backend"
  echo
  echo "Made by \`scripts/on-gpu.sh\`, which ran \`$command\`:"
  echo
  echo '```text'
  cat "$gpu/table.txt"
  echo '```'
} > "$out/device-$backend.md"

echo "== bandwidth of the paged reads, at least 85% of a plain read and of the card's peak aimed at"
python3 - "$out/device-$backend.json" <<'P'
import json, sys
report = json.load(open(sys.argv[1]))
peak = report["device"]["peak_bytes_per_second"]
low = False
for arm in report["arms"]:
    for kernel in arm["kernels"]:
        if "read_" in kernel["kernel"] and kernel["measured_ns"]["median"] > 1e6 and kernel["bytes"] > 1 << 28:
            share = kernel["bytes_per_second"] / peak if peak else float("nan")
            print(f"{arm['scenario']}: {kernel['kernel']} {kernel['bytes_per_second'] / 1e9:.0f} GB/s, "
                  f"{kernel['share_of_stream']:.0%} of a plain read, {share:.0%} of the card's peak")
            low |= kernel["share_of_stream"] < 0.85
sys.exit(1 if low else 0)
P
