"""Write the fields that every Hugging Face config class checks, and the model class that stands for each model type.

Usage: PYTHON_WITH_VLLM hf_fields.py > planner/src/import/hf_config/fields.txt
One line a model type: `TYPE [=MODEL] CODES:field,field ...`. A code is the JSON types that a field takes: i whole number, f number
with a point, b truth value, s text, n null, d object, l list of anything, (x) list of x, 'x' that text, * anything. The line of the
type `*` holds what every class has; a class's own line comes before it. Every model type that is known has a line, but the fields of
those that are no language model's are left out.
"""
import dataclasses
import sys
import types
import typing
import warnings

warnings.filterwarnings("ignore")
from transformers import CONFIG_MAPPING, PreTrainedConfig  # noqa: E402
from transformers.models.auto import modeling_auto as auto  # noqa: E402
from vllm.transformers_utils.config import _CONFIG_REGISTRY  # noqa: E402

SIMPLE = {int: "i", float: "f", bool: "b", str: "s", type(None): "n", dict: "d", list: "l", object: "*"}
MAPPINGS = ("MODEL_FOR_CAUSAL_LM_MAPPING_NAMES", "MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES",
            "MODEL_FOR_MULTIMODAL_LM_MAPPING_NAMES", "MODEL_FOR_SPEECH_SEQ_2_SEQ_MAPPING_NAMES")


def code(t):
    """What a JSON value may be, with nothing for what no JSON value is."""
    origin, args = typing.get_origin(t), typing.get_args(t)
    if t is typing.Any or isinstance(t, (str, typing.ForwardRef)):
        return "*"
    if t in SIMPLE:
        return SIMPLE[t]
    if origin in (typing.Union, types.UnionType):
        codes = dict.fromkeys(code(a) for a in args)
        return "*" if "*" in codes else "".join(c for c in codes if c)
    if origin is typing.Literal:
        return "".join("n" if a is None else f"'{a}'" if isinstance(a, str) else "*" for a in args)
    if origin is list or getattr(origin, "__name__", "") == "Sequence":
        return f"({code(args[0])})" if args else "l"
    if origin is dict or typing.is_typeddict(t):
        return "d"
    return ""


def fields(cls):
    checked = getattr(cls, "__validators__", {})
    hints = {f.name: f.type for f in dataclasses.fields(cls)}
    return {name: code(hints[name]) for name in checked if name in hints}


def line(name, own, model=None):
    by_code = {}
    for field, c in own.items():
        if c != "*":
            by_code.setdefault(c or "!", []).append(field)
    parts = [name] + ([f"={model}"] if model else [])
    return " ".join(parts + [f"{c}:{','.join(sorted(fs))}" for c, fs in sorted(by_code.items())])


base = fields(PreTrainedConfig)
print(line("*", base))
wanted = {name for m in MAPPINGS for name in getattr(auto, m, {})} | set(_CONFIG_REGISTRY)
classes = {}
for name in wanted | set(auto.MODEL_MAPPING_NAMES) | set(CONFIG_MAPPING.keys()):
    try:
        classes[name] = _CONFIG_REGISTRY[name] if name in _CONFIG_REGISTRY else CONFIG_MAPPING[name]
    except Exception as err:
        print(name, err, file=sys.stderr)
for name in list(classes):  # the text configs of what is wanted
    for key, sub in (getattr(classes[name], "sub_configs", None) or {}).items():
        kind = getattr(sub, "model_type", "")
        if name in wanted and kind and ("text" in key or "llm" in key or "language" in key or "thinker" in key):
            wanted.add(kind)
            classes.setdefault(kind, sub)
            for deeper in (getattr(sub, "sub_configs", None) or {}).values():
                if kind2 := getattr(deeper, "model_type", ""):
                    wanted.add(kind2)
                    classes.setdefault(kind2, deeper)
for name in sorted(classes):
    model = auto.MODEL_MAPPING_NAMES.get(name)
    model = model[0] if isinstance(model, (tuple, list)) else model
    own = {k: v for k, v in fields(classes[name]).items() if base.get(k) != v} if name in wanted else {}
    print(line(name.replace(" ", "-"), own, model))
