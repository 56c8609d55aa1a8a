"""What a starting server is doing, told from one line at a time.

For a live view, and for a watchdog that ends a start only when nothing moves: a first download of
an hour prints a bar that grows, a hang prints nothing new.
"""

import re

from autotune.diagnosis.log_text import read_line

_ANSI = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")
_SHARDS = re.compile(r"(?:checkpoint shards|loading shards|[Ll]oading \w+ using).*?(\d+)/(\d+)")
_BAR = re.compile(r"(\d+)/(\d+) \[")
_PERCENT = re.compile(r"(\d+)%")

# Later phases first: a line may mention an earlier one.
_PHASES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(pattern), phase)
    for pattern, phase in (
        (r"Application startup complete|Uvicorn running on", "ready"),
        (r"Shutting down|Waiting for (?:application shutdown|connections to close)", "stopping"),
        (r"\[shutdown\] ", "stopping"),
        (r"Starting vLLM (?:API )?server|Available routes|Waiting for application startup", "opening the port"),
        (r"[Mm]ulti-modal warmup|warming up|Warming up|[Ww]armup|init engine ", "warming up"),
        (r"Captur\w+ (?:CUDA|HIP|\w*) ?graphs|[Cc]apturing (?:the model|cudagraph)", "capturing graphs"),
        (r"Graph capturing finished", "capturing graphs"),
        (r"Profiling CUDA graph|Available KV cache memory|KV cache size|[Mm]emory profiling", "profiling memory"),
        (r"profil(?:e|ing) run|Initial profiling|# \w+ blocks: ", "profiling memory"),
        (r"[Aa]utotun(?:er|ing|e)\b", "autotuning kernels"),
        (r"Dynamo bytecode|torch\.compile|Compiling a graph|Directly load|Cache the graph", "compiling"),
        (r"Compiling \w+ kernels|Ninja|ninja: |nvcc |JIT compil", "compiling"),
        (r"[Dd]ownload", "downloading"),
        (r"Fetching \d+ files|\.(?:safetensors|bin|gguf|json|model):\s+\d+%", "downloading"),
        (r"[Ll]oading (?:model )?weights|Starting to load model|Checkpoint size|Loading \w+ checkpoint", "loading weights"),
        (r"checkpoint shards|Model loading took|loading shards|Loading \w+ using", "loading weights"),
        (r"Initializing an? (?:V\d )?LLM engine|world_size=\d|rank \d+ in world size|Waiting for \d+ local", "starting the engine"),
        (r"API server version|non-default args|Resolved architecture| version \d+\.\d+", "reading the configuration"),
    )
)  # fmt: skip


def progress(line: str) -> str | None:
    """Name the phase that a log line belongs to, with a count where the line has one.

    >>> progress("Loading safetensors checkpoint shards:  43% Completed | 3/7 [00:05<00:07]")
    'loading weights 3/7'
    >>> progress("(APIServer pid=7) INFO:     Application startup complete.")
    'ready'
    """
    # A bar that redraws itself: the newest drawing is the last one.
    newest = line.rstrip().rpartition("\r")[2]
    message = read_line(_ANSI.sub("", newest)).message
    for pattern, phase in _PHASES:
        if pattern.search(message):
            return f"{phase}{_count(message)}"
    return None


def _count(message: str) -> str:
    if found := _SHARDS.search(message) or _BAR.search(message):
        return f" {found[1]}/{found[2]}"
    if found := _PERCENT.search(message):
        return f" {found[1]}%"
    return ""
