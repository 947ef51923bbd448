#!/usr/bin/env bash
# Installs what compiles the kernels for GPUs on a machine without one, into .tools/ (about 650 MB, 1 minute):
# NVRTC from NVIDIA's wheel, and clang with lld from Zig's wheel, whose LLVM has the amdgcn target.
set -euo pipefail
cd "$(dirname "$0")/.."
tools=$PWD/.tools
mkdir -p "$tools"
if [ ! -x "$tools/venv/bin/python" ]; then python3 -m venv "$tools/venv"; fi
"$tools/venv/bin/python" -m pip install -q --disable-pip-version-check \
  nvidia-cuda-nvrtc-cu12==12.9.86 ziglang==0.17.1
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
echo "installed: K3PLAN_NVRTC=$tools/nvrtc/libnvrtc.so.12, $tools/amdgcn-clang, $tools/amdgcn-lld"
