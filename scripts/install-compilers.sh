#!/usr/bin/env bash
# Installs what compiles the kernels for GPUs on a machine without one, into .tools/ (about 650 MB, 1 minute):
# NVRTC from NVIDIA's wheel, and clang with lld from Zig's wheel, whose LLVM has the amdgcn target. A second run finds
# everything there and does nothing; keep .tools/ between CI runs.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
packages=(nvidia-cuda-nvrtc-cu12==12.9.86 ziglang==0.17.1)
stamp="$tools $(cksum < scripts/install-compilers.sh)"
if [ "$(cat "$tools/installed" 2>/dev/null)" = "$stamp" ] && [ -e "$tools/nvrtc/libnvrtc.so.12" ]; then
  echo "there already: $tools"
  exit
fi
if [ "$(uname -sm)" != "Linux x86_64" ]; then
  echo "the wheels are for Linux on x86-64, this is $(uname -sm)" >&2
  exit 1
fi
if ! command -v python3 >/dev/null; then
  echo "there is no python3, whose pip fetches the compilers" >&2
  exit 1
fi
mkdir -p "$tools"
rm -f "$tools/installed"
if [ ! -x "$tools/venv/bin/python" ]; then python3 -m venv "$tools/venv"; fi
# One try: where there is no registry, the answer should come soon.
if ! timeout 600 "$tools/venv/bin/python" -m pip install -q --disable-pip-version-check --retries 1 "${packages[@]}"; then
  echo "pip cannot fetch ${packages[*]}" >&2
  exit 1
fi
site=$("$tools/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
# The folder, not the file: NVRTC looks for its other half beside itself.
ln -sfn "$site/nvidia/cuda_nvrtc/lib" "$tools/nvrtc"
zig=$site/ziglang/zig

# clang's compiler proper: the driver would look for ROCm.
cat > "$tools/amdgcn-clang" <<EOF
#!/usr/bin/env bash
# amdgcn-clang TARGET SOURCE OBJECT
exec "$zig" clang -cc1 -triple amdgcn-amd-amdhsa -target-cpu "\$1" -emit-obj -fcuda-is-device \\
  -fvisibility=hidden -mllvm -amdgpu-internalize-symbols -std=c++20 -O3 -x hip "\$2" -o "\$3"
EOF
cat > "$tools/amdgcn-lld" <<EOF
#!/usr/bin/env bash
# amdgcn-lld OBJECT CODE
exec "$zig" ld.lld --no-undefined -shared "\$1" -o "\$2"
EOF
chmod +x "$tools/amdgcn-clang" "$tools/amdgcn-lld"
echo "$stamp" > "$tools/installed"
echo "installed: K3PLAN_NVRTC=$tools/nvrtc/libnvrtc.so.12, $tools/amdgcn-clang, $tools/amdgcn-lld"
