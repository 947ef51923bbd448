"""Where do the draft model's layers begin?

vLLM registers them behind the target's. From 0.33 a spec says whose it is. Before, the name does: a drafter of its own
goes on counting after the target's last layer, or has a prefix of its own.
"""

import re

from .settings import read

PREFIXES = {"mtp", "draft", "draft_model", "drafter", "eagle", "dspark", "dflash"}


def draft_from(config, names: list, marked: set):
    """The index of the first draft layer, if from there on every layer is the draft's; else None.

    `marked` holds the names whose spec says that it is a draft's.
    """
    if read(config, "speculative_config.method") is None:
        return None
    target = _target_layers(config)
    ours = [name in marked or (not marked and _by_name(name, target)) for name in names]
    if True not in ours:
        return None
    first = ours.index(True)
    return first if first > 0 and all(ours[first:]) else None


def _target_layers(config):
    for path in ("hf_text_config.num_hidden_layers", "hf_config.num_hidden_layers"):
        count = read(config, f"model_config.{path}")
        if isinstance(count, int):
            return count
    return None


def _by_name(name: str, target) -> bool:
    parts = name.split(".")
    if PREFIXES.intersection(parts):
        return True
    number = next((int(part) for part in parts if re.fullmatch(r"[0-9]{1,9}", part)), None)
    return target is not None and number is not None and number >= target
