"""`recipe.yaml`: the pick as a version 2 recipe, as sparkrun and the Spark community read it.

Every value stands in `defaults` and is named in `command` by `{key}`; JSON flags are JSON text, since
a mapping would be rendered as Python. The rendered command is the measured argv, except for host,
port and served model name, which the launcher chose for the measurement.
"""

import json
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import yaml

from autotune import __version__
from autotune.model.outcome import Measured
from autotune.model.results import Member, Results
from autotune.model.serving_config import ServingConfig, Setting, flag_name

DEFAULT_CONTAINER = "vllm-node"
SHORT_KEYS = {
    "tensor_parallel_size": "tensor_parallel",
    "pipeline_parallel_size": "pipeline_parallel",
    "data_parallel_size": "data_parallel",
}
"""Keys that sparkrun itself reads under another name than the flag's."""
MANAGED_ENVIRONMENT = re.compile(
    r"^(PYTORCH_CUDA_ALLOC_CONF|CUTE_DSL_.*|HF_HUB_OFFLINE|VLLM_CACHE_ROOT|TRITON_CACHE_DIR"
    r"|TORCHINDUCTOR_CACHE_DIR|FLASHINFER_WORKSPACE_BASE)$"
)
"""What sparkrun sets on its own for the platform and its caches."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Recipe:
    """The recipe of one pick: `balanced`, `throughput`, `ttft` or a trial's number."""

    pick: str = "balanced"
    filename: str = "recipe.yaml"

    def render(self, results: Results) -> str:
        member = results.pick(self.pick)
        if member is None:
            return ""
        config = results.space.config(member.trial.values)
        return render_recipe(config, _provenance(results, member), _container(results))


def render_recipe(config: ServingConfig, provenance: Mapping[str, Any], container: str) -> str:
    defaults: dict[str, Any] = {
        "port": 8000,
        "host": "0.0.0.0",  # noqa: S104  inside the recipe's container
        "served_model_name": config.model,
    }
    lines = [
        "vllm serve {model}",
        "--served-model-name {served_model_name}",
        "--host {host}",
        "--port {port}",
    ]
    for name, value in config.arguments().items():
        lines.append(_line(name, value, defaults))
    content: dict[str, Any] = {
        "recipe_version": "2",
        "model": config.model,
        "runtime": "vllm",
        "container": container,
        "metadata": {
            "description": f"{config.model}, serving knobs chosen by autotune",
            "autotune": dict(provenance),
        },
        "defaults": defaults,
    }
    environment = public_environment(config)
    if environment:
        content["env"] = environment
    content["command"] = _Block(" \\\n  ".join(lines) + "\n")
    return yaml.dump(content, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=10_000)


def public_environment(config: ServingConfig) -> dict[str, str]:
    """Leave out what sparkrun manages, and whatever may be a secret."""
    return {
        name: value
        for name, value in config.shown_environment().items()
        if not MANAGED_ENVIRONMENT.match(name)
    }


def _line(name: str, value: Setting, defaults: dict[str, Any]) -> str:
    """Render one flag and put its value among the defaults."""
    flag = flag_name(name)
    if isinstance(value, bool):
        return flag if value else "--no-" + flag.removeprefix("--")
    if isinstance(value, list | tuple):
        return " ".join([flag, *(shlex.quote(str(item)) for item in value)])
    key = SHORT_KEYS.get(name, name)
    if isinstance(value, Mapping):
        text = json.dumps(value, separators=(",", ":"))
        if "'" in text:
            return f"{flag} {shlex.quote(text)}"
        defaults[key] = text
        return f"{flag} '{{{key}}}'"
    defaults[key] = value
    quoted = shlex.quote(str(value)) != str(value)
    if quoted and "'" in str(value):
        del defaults[key]
        return f"{flag} {shlex.quote(str(value))}"
    return f"{flag} '{{{key}}}'" if quoted else f"{flag} {{{key}}}"


def _container(results: Results) -> str:
    image = results.space.server.launcher.options.get("image")
    return image if isinstance(image, str) else DEFAULT_CONTAINER


def _provenance(results: Results, member: Member) -> dict[str, Any]:
    outcome = member.trial.outcome
    facts = outcome.facts if isinstance(outcome, Measured) else None
    verdicts = outcome.verdicts if isinstance(outcome, Measured) else ()
    host = results.host
    return {
        **({"simulated": True} if results.simulated else {}),
        "version": __version__,
        "study": results.study,
        "trial": member.trial.number,
        "measured": _values(member),
        "baseline": None if results.baseline is None else _values(results.baseline),
        "confirmed": False,
        "vllm": None if facts is None else facts.vllm_version,
        "gpus": [] if host is None else list(host.gpus),
        "gates": {f"{v.gate} ({v.moment})": round(v.score, 4) for v in verdicts},
        **{v.gate: dict(v.signals) for v in verdicts if v.signals},
    }


def _values(member: Member) -> dict[str, dict[str, float | None]]:
    return {
        name: {
            "mean": round(estimate.mean, 3),
            "low": None if estimate.low is None else round(estimate.low, 3),
            "high": None if estimate.high is None else round(estimate.high, 3),
        }
        for name, estimate in member.estimates.items()
    }


class _Block(str):
    """Text that is written as a literal block."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    """Writes commands as blocks, so that people can read and change them."""


_Dumper.add_representer(
    _Block,
    lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", str(text), style="|"),
)
