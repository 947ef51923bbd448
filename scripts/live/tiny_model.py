"""Write a tiny model with random weights, which vLLM serves on a CPU in seconds.

tiny_model.py DIR ARCH [LAYERS] [WINDOW]
ARCH: llama, qwen3, mistral (every layer slides where WINDOW is given), or gemma3. LAYERS: how many, or for
gemma3 a list such as s,s,f of sliding and full ones.
"""
import json
import os
import sys

from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

folder, arch = sys.argv[1:3]
layers = sys.argv[3] if len(sys.argv) > 3 else "4"
window = int(sys.argv[4]) if len(sys.argv) > 4 else 512
types = [{"f": "full_attention", "s": "sliding_attention"}[t] for t in layers.split(",")] if "," in layers else None
config = dict(
    hidden_size=64, intermediate_size=128, num_hidden_layers=len(types) if types else int(layers),
    num_attention_heads=4, num_key_value_heads=2, head_dim=32, vocab_size=2048, max_position_embeddings=32768,
    rms_norm_eps=1e-6, torch_dtype="bfloat16", bos_token_id=1, eos_token_id=2, pad_token_id=0,
    tie_word_embeddings=True)
if arch == "gemma3":
    config |= dict(
        architectures=["Gemma3ForCausalLM"], model_type="gemma3_text", hidden_activation="gelu_pytorch_tanh",
        query_pre_attn_scalar=32, sliding_window=window, layer_types=types, rope_theta=1000000.0,
        rope_local_base_freq=10000.0)
    if types is None:
        config.pop("layer_types")
else:
    config |= dict(
        architectures=[{"llama": "LlamaForCausalLM", "qwen3": "Qwen3ForCausalLM", "mistral": "MistralForCausalLM"}[arch]],
        model_type=arch, hidden_act="silu", rope_theta=10000.0)
    if arch == "mistral":
        config["sliding_window"] = window
os.makedirs(folder, exist_ok=True)
with open(os.path.join(folder, "config.json"), "w") as file:
    json.dump(config, file, indent=1)
words = {"<pad>": 0, "<s>": 1, "</s>": 2, "<unk>": 3} | {f"w{i}": i for i in range(4, 2048)}
tokenizer = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
PreTrainedTokenizerFast(
    tokenizer_object=tokenizer, bos_token="<s>", eos_token="</s>", unk_token="<unk>", pad_token="<pad>",
).save_pretrained(folder)
