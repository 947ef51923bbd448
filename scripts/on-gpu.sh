#!/usr/bin/env bash
# All checks that need a GPU, in two steps, so that the GPU machine needs neither internet nor a toolchain.
#
#   scripts/on-gpu.sh pack   here: builds the command and the device tests, compiles the kernels for sm_80, sm_90
#                            and sm_100 with NVRTC and for gfx942 and gfx950 with clang (scripts/install-compilers.sh);
#                            all into .gpu/, about 30 MB, with the C++ library and the loader they were built against
#   scripts/on-gpu.sh        on the GPU machine, in a copy of this folder with .gpu/ (git ignores it: carry it along):
#                            equality with the references, then the tables of predicted against measured, which land in
#                            docs/device-BACKEND.md with the commands that made them, and as JSON (in the folder $OUT
#                            instead, if set: copy them from there to docs/), then the verdict on the bandwidth
#
# The second step takes about 3 minutes, 9 at most: each part has a limit. It goes on after a part that fails. Exit code
# 1 where a kernel differs, a paged read of 256 MiB or more is below 85% of a plain read, or a part did not end.
set -euo pipefail
cd "$(dirname "$0")/.."
gpu=$PWD/.gpu

pack() {
  rm -rf "$gpu"
  mkdir -p "$gpu/kernels" "$gpu/lib"
  scripts/install-compilers.sh
  cargo build --release
  cp "${CARGO_TARGET_DIR:-target}/release/k3plan" "$gpu/k3plan"
  cargo test --release -p k3plan-executor --test device --no-run --message-format=json |
    sed -n 's/.*"name":"device".*"executable":"\([^"]*\)".*/\1/p' | tail -1 | xargs -I{} cp {} "$gpu/device-tests"
  strip "$gpu/k3plan" "$gpu/device-tests"
  K3PLAN_NVRTC=$PWD/.tools/nvrtc/libnvrtc.so.12 K3PLAN_AMDGCN=$PWD/.tools \
    cargo run -q --release -p k3plan-executor --example compile_kernels -- \
    "$gpu/kernels" sm_80 sm_90 sm_100 gfx942 gfx950
  # What a machine with an older system, or without a C++ library, lacks.
  ldd "$gpu/k3plan" "$gpu/device-tests" | sed -n 's/.*=> \(\/[^ ]*\) .*/\1/p; s/^[[:space:]]*\(\/[^ ]*ld-linux[^ ]*\) .*/\1/p' |
    sort -u | xargs -I{} cp -L {} "$gpu/lib/"
  du -sh "$gpu"
}

if [ "${1:-}" = pack ]; then
  pack
  exit
fi
if [ ! -x "$gpu/k3plan" ]; then
  if ! command -v cargo >/dev/null; then
    echo "there is no .gpu/ and no cargo: run \`scripts/on-gpu.sh pack\` on a machine that has one, and copy .gpu/ along" >&2
    exit 2
  fi
  pack
fi

# As it is; with the C++ library it was built against; with that machine's loader and C library, too.
loader=$(echo "$gpu"/lib/ld-linux*)
ways=("" "env LD_LIBRARY_PATH=$gpu/lib/cxx:${LD_LIBRARY_PATH:-}" "$loader --library-path $gpu/lib:${LD_LIBRARY_PATH:-}")
mkdir -p "$gpu/lib/cxx"
cp "$gpu"/lib/libstdc++* "$gpu"/lib/libgcc_s* "$gpu/lib/cxx/" 2>/dev/null || true
way=none
for way in "${ways[@]}" none; do
  if [ "$way" = none ] || $way "$gpu/k3plan" --version >/dev/null 2>&1; then break; fi
done
if [ "$way" = none ]; then
  echo "the command in .gpu/ does not start on this machine:" >&2
  "$gpu/k3plan" --version || exit 2
fi

export K3PLAN_KERNELS=$gpu/kernels
timeout 30 $way "$gpu/k3plan" devices
backend=cuda
if [ ! -e /dev/nvidiactl ] && [ -e /dev/kfd ]; then backend=hip; fi
out=${OUT:-docs}
mkdir -p "$out"
failed=()
part() { # SECONDS NAME COMMAND...
  local seconds=$1 name=$2 code=0
  shift 2
  echo "== $name"
  timeout "$seconds" "$@" || code=$?
  if [ $code = 124 ]; then name="$name (not done within $seconds s)"; fi
  if [ $code != 0 ]; then failed+=("$name"); fi
}

equality() {
  local code=0
  $way "$gpu/device-tests" "$backend::" --nocapture --test-threads=1 >"$gpu/equality.log" 2>&1 || code=$?
  cat "$gpu/equality.log"
  if [ $code != 0 ] || grep -q "not run on $backend" "$gpu/equality.log"; then return 1; fi
}
export -f equality
export way gpu backend
part 150 "every kernel equals its reference on $backend" bash -c equality

batch="bench device kimi-k3-dspark --device $backend --requests 16 --context 65536 --memory 40 --runs 21 --at-least 0.85"
steps="bench device kimi-k3-dspark --device $backend --simulate --steps 8 --memory 40 --runs 11"
measure() { # NAME ARGUMENTS: a table into NAME.txt and NAME.json
  # shellcheck disable=SC2086
  $way "$gpu/k3plan" $2 --output "$out/$1.json" | tee "$gpu/$1.txt"
}
export -f measure
export out
# The table comes before the verdict: a low bandwidth fails the part, not the table.
part 180 "one batch: k3plan $batch" bash -o pipefail -c 'measure "$@"' measure "device-$backend" "$batch"
part 150 "simulated steps: k3plan $steps" bash -o pipefail -c 'measure "$@"' measure "device-$backend-steps" "$steps"
{
  echo "# Predicted and measured on $backend"
  echo
  echo "Made by \`scripts/on-gpu.sh\`, which ran the commands below; the same as JSON stands beside."
  for table in "device-$backend" "device-$backend-steps"; do
    if [ "$table" = "device-$backend" ]; then command=$batch; else command=$steps; fi
    echo
    echo '```console'
    echo "$ k3plan $command"
    cat "$gpu/$table.txt"
    echo '```'
  done
} > "$out/device-$backend.md"
echo "== written: $out/device-$backend.md, $out/device-$backend.json, $out/device-$backend-steps.json"
if [ ${#failed[@]} -gt 0 ]; then
  printf 'FAILED: %s\n' "${failed[@]}"
  exit 1
fi
echo "all checks passed on $backend"
