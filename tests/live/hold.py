"""Hold k3plan to one server: its dump, the figures that the server itself logged, and the model's own config.

hold.py K3PLAN DUMP LOG MODEL: prints the plan's figures, then `passed` or what failed. Exit code 1 if anything failed.
"""
import json
import re
import subprocess
import sys

k3plan, dump, log, model = sys.argv[1:]
try:
    (text,) = open(dump).read().splitlines()
    line = json.loads(text)
except (OSError, ValueError) as error:
    print(f"FAILED: no dump of one line: {error}")
    sys.exit(1)
(answer,) = line["expect"].values()
shape = [len(line["layers"]), len(answer["groups"]), answer["num_blocks"], f"{answer['max_concurrency']:.6g}"]
print("{:>7} {:>7} {:>8} {:>12}".format(*shape))
wrong = []


def run(*arguments):
    done = subprocess.run([k3plan, *arguments], capture_output=True, text=True)
    if done.returncode != 0:
        wrong.append(f"k3plan {' '.join(arguments[:1])}: exit code {done.returncode}\n{done.stdout}{done.stderr}")
    return done.stdout


if run("verify", dump) != "1 cases, 0 differ\n":
    wrong.append("k3plan verify: not `1 cases, 0 differ`")
run("explain", dump)
run("check", dump, "--update", "--baseline", dump + ".lock")
run("check", dump, "--baseline", dump + ".lock")
try:
    (plan,) = json.loads(run("plan", "--json", dump))["plans"]
except (ValueError, KeyError) as error:
    wrong.append(f"k3plan plan --json: {error!r}")
else:
    pool = plan["pool"]
    for name, mine, theirs in [
        ("version", plan["engine"], ".".join(next(iter(line["expect"])).split(".")[:2])),
        ("groups", [group["layers"] for group in plan["groups"]], answer["groups"]),
        ("block sizes", [group["block_size"] for group in plan["groups"]], answer["block_sizes"]),
        ("blocks", pool["num_blocks"], answer["num_blocks"]),
        ("concurrency", pool["max_concurrency"], answer["max_concurrency"]),
    ]:
        if mine != theirs:
            wrong.append(f"{name}: k3plan plans {mine}, vLLM made {theirs}")
# What the server logs is not what the plugin asked for: the two must agree, and k3plan with both.
logged = re.search(r"KV cache size: ([0-9,]+) tokens.*?Maximum concurrency for ([0-9,]+) tokens per request: "
                   r"([0-9.,]+)x", open(log).read(), re.S)
if logged is None:
    wrong.append("the server's log has no line of its KV cache size")
else:
    tokens, length, concurrency = (part.replace(",", "") for part in logged.groups())
    asked = line["engine"]["max_model_len"]
    planned = answer["max_model_len"] if asked == -1 else asked
    mine = (str(int(answer["max_concurrency"] * planned)), str(planned), f"{answer['max_concurrency']:.2f}")
    if mine != (tokens, length, concurrency):
        wrong.append(f"the log says {(tokens, length, concurrency)}, the dump {mine}")


def imported(*side):
    """What `k3plan import log` finds, with `side` beside it, which has to agree."""
    try:
        report = json.loads(run("import", "log", "--json", log, *side))
    except ValueError as error:
        wrong.append(f"k3plan import log {side[0]}: {error!r}")
        return None
    for figure in report["beside"]["figures"]:
        if figure["verdict"] == "different":
            wrong.append(f"import log {side[0]}: {figure['name']}: log {figure['log']}, plan {figure['plan']}")
    if not report["beside"]["agrees"]:
        wrong.append(f"import log {side[0]}: the log and the plan do not agree")
    return report


# The importer of logs reads what the plugin dumped, and its plan of the dump, or of the config alone, is that log.
engine = line["engine"]
report = imported("--scenario", dump)
config = imported("--model", model, "--set", f"max-num-batched-tokens={engine['max_num_batched_tokens']}",
                  "--set", f"max-concurrent-batches={engine['max_concurrent_batches']}")
if report:
    found = report["found"]
    planned = answer["max_model_len"] if engine["max_model_len"] == -1 else engine["max_model_len"]
    for name, logged, dumped in [
        ("version", found.get("version", {}).get("value"), next(iter(line["expect"]))),
        ("tokens", found.get("kv_cache_size", [{}])[0].get("tokens"), int(answer["max_concurrency"] * planned)),
        ("concurrency", found.get("max_concurrency", [{}])[0].get("requests"), f"{answer['max_concurrency']:.2f}"),
        ("length", found.get("max_concurrency", [{}])[0].get("max_model_len"), planned),
        ("block sizes", found.get("group_block_sizes", {}).get("value", answer["block_sizes"]), answer["block_sizes"]),
    ]:
        if logged != dumped:
            wrong.append(f"import log: {name} {logged}, the dump {dumped}")
    for side, name in ((report, "dump"), (config, "config")):
        low, high = (side or {}).get("beside", {}).get("num_blocks") or (0, 0)
        if not low <= answer["num_blocks"] <= high:
            wrong.append(f"import log beside the {name}: {low} to {high} blocks, the dump {answer['num_blocks']}")
print("\n".join(wrong) if wrong else "passed")
sys.exit(1 if wrong else 0)
