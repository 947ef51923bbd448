"""Ask aiconfigurator-core for the KV cache of one sequence: capacity-aiconfigurator.py TOKENS NAME=TP..

Prints {NAME: bytes on one rank, or null where it does not know the model}; bfloat16.
"""
import json
import sys

from aiconfigurator_core.sdk import common, config, models

tokens, answers = int(sys.argv[1]), {}
for argument in sys.argv[2:]:
    name, tp = argument.split("=")
    try:
        engine = config.ModelConfig(
            tp_size=int(tp), moe_tp_size=int(tp), moe_ep_size=1, kvcache_quant_mode=common.KVCacheQuantMode.bfloat16)
        answers[name] = int(models.get_model(name, engine, "vllm").get_kvcache_bytes_per_sequence(tokens))
    except Exception as error:  # whatever it raises for a model that it cannot build
        print(name, type(error).__name__, error, file=sys.stderr)
        answers[name] = None
print(json.dumps(answers))
