"""What does a layer declare about its cache? A KV cache spec of vLLM as JSON, by vLLM's own field names."""

import dataclasses
import enum
from fractions import Fraction

# vLLM's class to the kind that k3plan has for it. A class that is not listed keeps its name, and k3plan says so.
KINDS = {
    "FullAttentionSpec": "full",
    "MLAAttentionSpec": "mla",
    "SlidingWindowSpec": "sliding",
    "SlidingWindowMLASpec": "sliding_mla",
    "ChunkedLocalAttentionSpec": "chunked",
    "MambaSpec": "mamba",
    "CrossAttentionSpec": "cross",
    "SinkFullAttentionSpec": "sink",
    "EncoderOnlyAttentionSpec": "encoder_only",
    "RSWASpec": "rswa",
    "HiddenStateCacheSpec": "hidden_state",
    "CircularBufferSpec": "circular_buffer",
}


def plain(value):
    """A field's value in JSON's types."""
    if isinstance(value, enum.Enum):
        return value.name
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, Fraction):
        return [value.numerator, value.denominator]
    if type(value).__name__ == "MultipleOf":
        return {"multiple_of": value.base}
    return str(value).replace("torch.", "", 1)


def describe(spec) -> dict:
    """The kind, and each field that takes part in equality and is not at its default.

    Raises `TypeError` if the spec is no dataclass.
    """
    name = type(spec).__name__
    declared = {"kind": KINDS.get(name, name)}
    for field in dataclasses.fields(spec):
        value = getattr(spec, field.name)
        if not field.compare or value is None:
            continue
        if field.default is not dataclasses.MISSING and value == field.default:
            continue
        # vLLM fills an unset value head with the key head's size.
        if field.name == "head_size_v" and field.default is None and value == spec.head_size:
            continue
        declared[field.name] = plain(value)
    return declared


def distinct(layers: dict) -> tuple:
    """The different specs, in order of first use, and the index of each layer's own."""
    specs, index = [], []
    for spec in layers.values():
        if spec not in specs:
            specs.append(spec)
        index.append(specs.index(spec))
    return specs, index
