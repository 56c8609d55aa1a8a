"""What was asked for and what the server made of it: a setting that had no effect must be told."""

import re
from collections.abc import Mapping

from autotune.model.diagnosis import ServerFacts

_LEFT_TO_VLLM = {"", "auto", "none", "-1"}

# Names of data types that mean the same cache.
_SAME_DTYPE = {"fp8": "fp8_e4m3", "float8_e4m3fn": "fp8_e4m3"}

# What a warning says about a setting that was asked for: the flag, the value, the phrase.
_PHRASES: tuple[tuple[str, object, str], ...] = (
    ("async_scheduling", True, "Async scheduling"),
    ("enable_chunked_prefill", False, "disabling chunked prefill"),
    ("enable_prefix_caching", True, "prefix caching"),
    ("enable_expert_parallel", True, "expert parallel"),
    ("enable_dbo", True, "DBO"),
)
_CAPTURE_SIZES = re.compile(r"cudagraph capture sizes from max (\d+) to (\d+)")


def unheeded(asked: Mapping[str, object], facts: ServerFacts) -> tuple[str, ...]:
    """Name the settings that became something else, one sentence each.

    asked: flags in snake_case (parts of a JSON flag with a dot between) and environment variables

    >>> unheeded({"attention_backend": "FLASHINFER"}, ServerFacts(attention_backend="TRITON_ATTN"))
    ('attention_backend was asked as FLASHINFER and became TRITON_ATTN.',)
    """
    settings = {name.rpartition(".")[2]: value for name, value in asked.items()}
    found = [
        sentence for name, value in settings.items() if (sentence := _compare(name, value, facts))
    ]
    found += [
        f"{name} is an environment variable that this vLLM does not know; it has no effect."
        for name in asked
        if name in facts.unknown_env
    ]
    said = facts.ignored_settings + facts.caps
    found += [
        f"{name} was asked as {value}, but: {sentence}"
        for name, value, phrase in _PHRASES
        if settings.get(name) is value
        for sentence in said
        if phrase.lower() in sentence.lower()
    ]
    return (*found, *_capped_graphs(settings, facts))


def _compare(name: str, value: object, facts: ServerFacts) -> str | None:
    became = getattr(facts, name, None)
    if name not in _HEEDED or became is None or str(value).lower() in _LEFT_TO_VLLM:
        return None
    if value is None or _HEEDED[name](str(value), str(became)):
        return None
    return f"{name} was asked as {value} and became {became}."


def _plain(name: str) -> str:
    return re.sub(r"[^a-z0-9]", "", name.lower())


def _same_name(asked: str, became: str) -> bool:
    return _plain(asked.rpartition(".")[2]) == _plain(became.rpartition(".")[2])


def _same_moe(asked: str, became: str) -> bool:
    """Compare a flag with the log's name, which says more (`VLLM_CUTLASS`, `BATCHED_TRITON`)."""
    found = _plain(became)
    return _plain(asked) in {found, found.removeprefix("vllm"), found.removeprefix("batched")}


def _same_kernel(asked: str, became: str) -> bool:
    """Compare a flag with the class of a kernel, e.g. `FlashInferCutlassNvFp4LinearKernel`."""
    wanted, found = _plain(asked), _plain(became)
    return wanted in found and found.startswith("flashinfer") == wanted.startswith("flashinfer")


def _same_count(asked: str, became: str) -> bool:
    return not asked.isdecimal() or int(asked) == int(became)


def _same_dtype(asked: str, became: str) -> bool:
    return _SAME_DTYPE.get(asked, asked) == _SAME_DTYPE.get(became, became)


_HEEDED = {
    "attention_backend": _same_name,
    "moe_backend": _same_moe,
    "linear_backend": _same_kernel,
    "kv_cache_dtype": _same_dtype,
    "cudagraph_mode": _same_name,
    "max_model_len": _same_count,
    "max_num_batched_tokens": _same_count,
    "max_num_seqs": _same_count,
}


def _capped_graphs(settings: Mapping[str, object], facts: ServerFacts) -> tuple[str, ...]:
    asked = settings.get("max_cudagraph_capture_size")
    for sentence in facts.caps:
        found = _CAPTURE_SIZES.search(sentence)
        if found and isinstance(asked, int) and int(found[2]) < asked:
            return (f"max_cudagraph_capture_size was asked as {asked} and became {found[2]}.",)
    return ()
