"""What a server says about itself: version, backends, memory, seconds, and what it did not heed.

A number is taken only with the unit behind it: a line that a terminal broke in the middle of a
number must not become a smaller number.
"""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, TypeAlias

from autotune.diagnosis.log_text import LogLine, LogText
from autotune.diagnosis.phrases import literal_phrases
from autotune.diagnosis.signatures import hits, load_signatures
from autotune.model.diagnosis import ServerFacts

Pick: TypeAlias = Literal["first", "min", "max", "sum", "each"]

# Before 0.8 the size of the KV cache is printed in blocks; this is the default size of one.
_BLOCK_TOKENS = 16
# A server that complains about every request must not fill the record.
_MOST_SENTENCES = 40
_MOST_SIGHTINGS = 200


def _number(text: str) -> float:
    return float(text.replace(",", ""))


def _integer(text: str) -> int:
    return int(_number(text))


def _backend(text: str) -> str:
    """Name an attention backend as its flag does; before 0.11 the log had names for people."""
    name = text.strip().strip("'\"").removeprefix("AttentionBackendEnum.")
    known = {"FLASH_ATTENTION": "FLASH_ATTN", "TRITON": "TRITON_ATTN", "FLASH_INFER": "FLASHINFER"}
    key = re.sub(r"[ -]+", "_", name).upper()
    return known.get(key, key)


def _moe_backend(text: str) -> str:
    return re.sub(r"[ -]+", "_", text.strip().strip("'\"")).upper()


@dataclass(frozen=True)
class Probe:
    """Where one fact stands in a log. `per_process`: only the first process that says it counts."""

    name: str
    pattern: str
    read: Callable[[str], Any] = _number
    pick: Pick = "first"
    per_process: bool = False

    @cached_property
    def regex(self) -> re.Pattern[str]:
        return re.compile(self.pattern)

    @cached_property
    def phrases(self) -> tuple[str, ...]:
        return literal_phrases(self.pattern)


# Stands between the name of a MoE backend and the word; both may have several words.
_QUANTIZED = r"(?:NvFp4|M[Xx][Ff][Pp]\d|Fp8|WNA16|Unquantized|W4A8(?: Int8)?|Int8|Int4|Humming)"

_PROBES = (
    Probe("vllm_version", r"\bAPI server version (\d[^\s,]*)", str),
    Probe("vllm_version", r"(?:█|▀|▄).* version (\d[^\s,]*)", str),
    Probe("vllm_version", r"Initializing an? (?:V\d )?LLM engine \(v(\d[^)\s]*)\)", str),
    Probe("model", r"\bmodel='([^']+)'", str),
    Probe("model", r"'model(?:_tag)?': '([^']+)'", str),
    Probe("model", r"Starting to load model (\S+?)\.\.\.", str),
    Probe("model_runner", r"Using (V\d) Model Runner", str),
    Probe("model_runner", r"using the (V\d) model runner instead", str),
    Probe("attention_backend", r"Using (\w+) attention backend out of potential", _backend),
    Probe(
        "attention_backend", r"Using (?:AttentionBackendEnum\.)?(\w+) backend \(selected", _backend
    ),
    Probe("attention_backend", r"Using AttentionBackendEnum\.(\w+) backend", _backend),
    Probe("attention_backend", r"KV cache layout for (\w+) backend", _backend),
    Probe("attention_backend", r"Using ([\w -]{3,40}?) backend(?: on V1 engine)?\.", _backend),
    Probe("moe_backend", rf"Using ('[^']+'|[\w -]+?) (?:{_QUANTIZED} )?MoE backend", _moe_backend),
    Probe("moe_backend", r"Using ([\w -]+?) backend for (?:\w+ )?MoE", _moe_backend),
    Probe("linear_backend", r"Selected (\w+Kernel) for ", str),
    Probe("linear_backend", r"Using (\w+) for NVFP4 GEMM", str),
    Probe("linear_backend", r"Using (\w+LinearKernel) for ", str),
    Probe("kv_cache_dtype", r"Using (\w+) data type to store kv cache", str),
    Probe("cudagraph_mode", r"[Ss]etting cudagraph_mode=(\w+)", str),
    Probe(
        "cudagraph_mode",
        r"Overriding cudagraph_mode (?:from \S+ )?to (?:CUDAGraphMode\.)?(\w+)",
        str,
    ),
    Probe("max_model_len", r"Auto-fit max_model_len: reduced from \d+ to (\d+) ", _integer),
    Probe("max_model_len", r"Using max model len (\d+)(?:\D|$)", _integer),
    Probe("max_num_batched_tokens", r"enabled with max_num_batched_tokens=(\d+)\b", _integer),
    Probe("max_num_seqs", r"Overriding max_num_active_seqs from \d+ to (\d+)\b", _integer),
    Probe("kv_cache_tokens", r"KV cache size: ([\d,]+) tokens", _integer, "min"),
    Probe(
        "max_concurrency",
        r"Maximum concurrency for [\d,]+ tokens per request: ([\d.]+)x",
        pick="min",
    ),
    Probe(
        "max_concurrency_tokens", r"Maximum concurrency for ([\d,]+) tokens per request", _integer
    ),
    Probe("kv_cache_gib", r"Available KV cache memory: ([\d.]+) GiB", pick="min"),
    Probe("kv_cache_gib", r"memory reserved for KV Cache is ([\d.]+) ?GiB", pick="min"),
    Probe("kv_cache_gib", r"kv cache memory in use is ([\d.]+) GiB", pick="min"),
    Probe("model_memory_gib", r"Model loading took ([\d.]+) G(?:i)?B", pick="max"),
    Probe("model_memory_gib", r"Loading model weights took ([\d.]+) G(?:i)?B", pick="max"),
    Probe(
        "graph_memory_gib",
        r"Graph capturing finished in [\d.]+ secs, took (-?[\d.]+) GiB",
        pick="max",
    ),
    Probe("download_s", r"Time spent downloading weights for \S+ ([\d.]+) seconds"),
    Probe("weights_s", r"Loading (?:\w+ )?weights took ([\d.]+) seconds"),
    Probe(
        "compile_s",
        r"torch\.compile (?:took|takes) ([\d.]+) s in total",
        pick="sum",
        per_process=True,
    ),
    Probe("graph_capture_s", r"Graph capturing finished in ([\d.]+) secs", pick="max"),
    Probe("unknown_env", r"Unknown vLLM environment variable detected: (\w+)", str, "each"),
    Probe("init_engine_s", r"init engine .* took ([\d.]+) s(?:econds)?\b", pick="max"),
)

_BLOCKS = Probe("blocks", r"# \w+ blocks: (\d+)(?:\D|$)", _integer, "min")
_BLOCK_SIZE = Probe("block_size", r"\bblock_size[=:'\s]{1,4}(\d+)\b", _integer)
_LOADED = Probe("loaded", r"Directly load ", str)
_COMPILED = Probe("compiled", r"Compiling a graph for ", str)

_PICKS: dict[Pick, Callable[[list[Any]], Any]] = {
    "first": lambda found: found[0],
    "min": min,
    "max": max,
    "sum": lambda found: round(sum(found), 6),
    "each": lambda found: tuple(dict.fromkeys(found)),
}


def read_facts(log: LogText, *, start: int = 0) -> ServerFacts:
    """Collect the facts from an offset on; the first way to find one that succeeds counts."""
    values: dict[str, Any] = {}
    for probe in _PROBES:
        if probe.name not in values and (found := _values(log, probe, start)):
            values[probe.name] = _PICKS[probe.pick](found)
    if "kv_cache_tokens" not in values and (blocks := _values(log, _BLOCKS, start)):
        size = _values(log, _BLOCK_SIZE, start)
        values["kv_cache_tokens"] = min(blocks) * (size[0] if size else _BLOCK_TOKENS)
    values["compile_cache_hit"] = _cache_hit(log, start)
    for name, failure_class in _SENTENCES.items():
        values[name] = sentences(log, failure_class, start=start)
    return ServerFacts(**values)


_SENTENCES = {
    "ignored_settings": "ignored_setting",
    "caps": "silent_cap",
    "deprecations": "deprecated",
}


def sentences(log: LogText, failure_class: str, *, start: int = 0) -> tuple[str, ...]:
    """Collect vLLM's warnings of one class, each once."""
    found: dict[str, None] = {}
    for signature in load_signatures():
        if signature.level != "warning" or signature.failure_class != failure_class:
            continue
        for hit in hits(log, signature, start=start):
            found.setdefault(hit.line.message.strip())
            if len(found) >= _MOST_SENTENCES:
                return tuple(found)
    return tuple(found)


def _cache_hit(log: LogText, start: int) -> bool | None:
    """Say whether every graph came from the compile cache."""
    if next(_sightings(log, _COMPILED, start), None) is not None:
        return False
    return True if next(_sightings(log, _LOADED, start), None) is not None else None


def _values(log: LogText, probe: Probe, start: int) -> list[Any]:
    found: list[Any] = []
    process = None
    for line, match in _sightings(log, probe, start):
        said_by = line.raw[: len(line.raw) - len(line.message)].partition(")")[0]
        process = process or said_by
        if probe.per_process and said_by != process:
            continue
        try:
            found.append(probe.read(match[1]))
        except ValueError:  # "1.2.3" where a number is due
            continue
        if len(found) >= _MOST_SIGHTINGS or (probe.pick == "first"):
            break
    return found


def _sightings(log: LogText, probe: Probe, start: int) -> Iterator[tuple[LogLine, re.Match[str]]]:
    for offset in log.offsets(probe.phrases, start):
        line = log.line(offset)
        for reading in log.readings(line):
            if match := probe.regex.search(reading):
                yield line, match
                break
