"""What an exit code says about a process that ended although nobody asked it to."""

from dataclasses import dataclass

_SIGNALS = 128
_KILLED, _ABORTED, _SEGFAULT = 9, 6, 11
_HANDED_IN = {1: "SIGHUP", 2: "SIGINT", 15: "SIGTERM"}
_USAGE = 2
_CONTAINER = {
    125: "Correct what the container runtime refuses; its message stands at the start of the log.",
    126: "Correct the command: the container could not execute it.",
    127: "Correct the command: it was not found in the container or on the PATH.",
}


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """A family and a remedy. `tells_more`: more than that the engine died."""

    family: str
    failure_class: str
    remedy: str | None
    tells_more: bool = False


def explain_exit(code: int | None) -> Explanation | None:
    """Read an exit code: negative for a signal as Python gives it, above 128 as a shell does."""
    if code is None:
        return None
    signal = -code if code < 0 else code - _SIGNALS
    if signal > 0:
        return _by_signal(signal)
    if code in _CONTAINER:
        return Explanation(
            family="host_setup", failure_class="container", remedy=_CONTAINER[code], tells_more=True
        )
    if code == _USAGE:
        return Explanation(
            family="invalid_config",
            failure_class="bad_flag",
            remedy="Check the command line: exit code 2 is how the argument parser ends.",
        )
    if code == 0:
        # vLLM 0.32 ends with 0 when its engine was killed.
        return Explanation(
            family="engine_died",
            failure_class="exit_unasked",
            remedy="Look for the OOM killer in the kernel log: the server ended although nobody asked it to.",
        )
    return Explanation(
        family="unknown",
        failure_class="unknown",
        remedy="Start it by hand with VLLM_LOGGING_LEVEL=DEBUG: the log does not say why it ended.",
    )


def _by_signal(signal: int) -> Explanation:
    if signal in _HANDED_IN:
        return Explanation(
            family="interrupted",
            failure_class="terminated",
            remedy=f"Start it again: somebody sent {_HANDED_IN[signal]}.",
        )
    if signal == _KILLED:
        return Explanation(
            family="engine_died",
            failure_class="killed",
            remedy="Look for the OOM killer in the kernel log and lower gpu_memory_utilization: the process was killed with signal 9.",
            tells_more=True,
        )
    named = {_ABORTED: "aborted", _SEGFAULT: "crashed"}.get(signal, f"ended by signal {signal}")
    return Explanation(
        family="engine_died",
        failure_class="native_abort",
        remedy=f"Change the backend or the image: a native library {named}.",
        tells_more=True,
    )
