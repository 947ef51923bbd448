#!/usr/bin/env bash
# The kernels under ThreadSanitizer and AddressSanitizer with UndefinedBehaviorSanitizer: the GPU's code with a
# real thread for each GPU thread, and the CPU's with its programs on two threads. Then the same with every
# barrier taken out, which ThreadSanitizer must find: else it would have found nothing before either.
#
# sanitize.sh          with 1, 2, 5 and 8 threads a block
# sanitize.sh short    with 5
set -euo pipefail
cd "$(dirname "$0")/../kernels/csrc"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT
cxx=${CXX:-g++}
rounds=()
if [ "${1:-}" = short ]; then rounds=(short); fi
build() { # NAME FLAGS...
  local name=$1
  shift
  "$cxx" -std=c++20 -O1 -g -Wno-psabi -Wno-unknown-pragmas -DK3_LEVEL=base "$@" \
    cpu.cpp emulate.cpp sanitize.cpp -o "$out/$name" -pthread
}
build thread -fsanitize=thread &
build broken -fsanitize=thread -DK3_WITHOUT_BARRIERS &
build address -fsanitize=address,undefined -fno-sanitize-recover=undefined &
wait
# ThreadSanitizer needs addresses where it expects them; some kernels randomise more than it allows.
plain=()
if setarch -R true 2>/dev/null; then plain=(setarch -R); fi
echo "ThreadSanitizer:"
TSAN_OPTIONS=halt_on_error=1 "${plain[@]}" "$out/thread" "${rounds[@]}"
echo "AddressSanitizer, UndefinedBehaviorSanitizer, leaks:"
if ! "$out/address" "${rounds[@]}"; then exit 1; fi
echo "ThreadSanitizer without barriers:"
if TSAN_OPTIONS="halt_on_error=1 exitcode=66" "${plain[@]}" "$out/broken" >"$out/log" 2>&1; then
  echo "a missing barrier was NOT found"
  exit 1
fi
if ! grep -q "data race" "$out/log"; then cat "$out/log"; exit 1; fi
echo "a missing barrier is found, as it must be"
