"""Ask an installed vLLM for the specs and the plan of many models: one import, then a fork a case.

Usage: PYTHON_WITH_VLLM ask_models.py ORACLE_FOLDER CASES.json OUT.jsonl [SECONDS_A_CASE]
ORACLE_FOLDER holds specs.py and oracle.py. Cases already in OUT.jsonl (by id) are skipped; each answer is
one line: {"oracle", "id", "config", "draft_config"?, "engine", "expect"}.
"""
import json
import os
import sys
import tempfile

folder, cases_file, out_file = sys.argv[1:4]
limit = int(sys.argv[4]) if len(sys.argv) > 4 else 120
sys.path.insert(0, folder)
import specs  # noqa: E402
import oracle  # noqa: E402

os.environ.update(specs.ENV)
import logging  # noqa: E402

logging.disable(logging.CRITICAL)
import torch  # noqa: E402, F401

torch.set_num_threads(1)
import vllm  # noqa: E402
import vllm.config  # noqa: E402, F401
import vllm.distributed.parallel_state  # noqa: E402, F401
import vllm.engine.arg_utils  # noqa: E402, F401
import vllm.model_executor.model_loader.utils  # noqa: E402, F401
import vllm.model_executor.models.llama  # noqa: E402, F401
import vllm.platforms  # noqa: E402, F401
import transformers  # noqa: E402, F401
import torch.testing._internal.distributed.fake_pg  # noqa: E402, F401

# A model class is inspected in this process, not in a new one that imports everything again.
import vllm.model_executor.models.registry as registry  # noqa: E402

registry._run_in_subprocess = lambda fn: fn()
VERSION = "vllm " + vllm.__version__


def plan(case):
    e = case["expect"]
    case["engine"].setdefault("available_memory", 40 << 30)
    layers = [{k: v for k, v in l.items() if k not in ("page_size_bytes", "mamba_type")} for l in e["layers"]]
    engine = dict(case["engine"], max_num_batched_tokens=case["engine"].get("max_num_batched_tokens", 8192))
    e["plan"] = oracle.answer({"layers": layers, "engine": engine})


def child(case, path):
    import signal
    import traceback
    signal.alarm(limit)
    null = os.open("/dev/null", os.O_WRONLY)
    os.dup2(null, 1)
    try:
        case["expect"] = specs.specs(case)
        try:
            plan(case)
        except BaseException as err:
            case["plan_failed"] = f"{type(err).__name__}: {err}"[:300]
    except BaseException as err:
        traceback.print_exc()
        case["expect"] = {"error": type(err).__name__, "detail": str(err)[:600]}
    with open(path, "w") as f:
        json.dump({"oracle": VERSION, **case}, f, separators=(",", ":"))
    os._exit(0)


done = set()
if os.path.exists(out_file):
    done = {json.loads(line)["id"] for line in open(out_file)}
for case in json.load(open(cases_file)):
    if case["id"] in done:
        continue
    with tempfile.TemporaryDirectory() as d:
        path = d + "/o.json"
        pid = os.fork()
        if pid == 0:
            child(case, path)
        _, status = os.waitpid(pid, 0)
        line = open(path).read() if os.path.exists(path) else json.dumps(
            {"oracle": VERSION, **case, "expect": {"error": "Crash", "detail": str(status)}})
    with open(out_file, "a") as f:
        f.write(line + "\n")
