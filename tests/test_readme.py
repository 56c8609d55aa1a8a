"""What the README and the shipped files promise is there."""

import re
import shlex
from pathlib import Path

import pytest
import yaml

from autotune import wiring
from autotune.cli import app
from autotune.model.objective import UNITS
from autotune.model.presets import PRESETS

ROOT = Path(__file__).parents[1]
README = (ROOT / "README.md").read_text()
SPACES = sorted((ROOT / "search_spaces").glob("*.yaml"))


def blocks(language):
    return re.findall(rf"```{language}\n(.*?)```", README, re.DOTALL)


def test_the_readmes_search_space_is_valid(tmp_path):
    (text,) = blocks("yaml")
    path = tmp_path / "space.yaml"
    path.write_text(text)

    space = wiring.read_space(path)

    assert space.baseline["max_num_seqs"] == 4
    assert len(space.workloads) == 2


@pytest.mark.parametrize(
    "line",
    [
        line.split("#")[0].strip()
        for block in blocks("sh")
        for line in block.splitlines()
        if "autotune" in line and not line.startswith("python3")
    ],
)
def test_every_autotune_command_in_the_readme_parses(line):
    words = shlex.split(line)

    app.parse_args(words[1:], exit_on_error=False, print_error=False)


def test_the_first_two_commands_set_everything_up():
    first, second = (block.strip() for block in blocks("sh")[:2])

    assert first.startswith("python3 -m venv .venv && ")
    assert first.endswith("autotune search_spaces/demo.yaml --trials 40")
    assert second.startswith("python3 -m venv .venv && ")
    assert second.endswith("pytest")


def test_the_readme_names_every_shipped_space_and_no_other():
    named = set(re.findall(r"`([\w-]+\.yaml)`", README))

    assert {path.name for path in SPACES} <= named
    assert named - {"recipe.yaml"} == {path.name for path in SPACES}


@pytest.mark.parametrize("path", SPACES, ids=lambda path: path.stem)
def test_every_shipped_space_is_valid_and_starts_with_a_legal_baseline(path):
    space = wiring.read_space(path)

    assert space.name == path.stem
    assert not space.broken_rules(space.baseline)
    assert yaml.safe_load(path.read_text())["limits"]["trials"] >= 1
    assert space.config(space.baseline).argv()[0] == space.model


def test_metrics_and_presets_that_the_readme_names_exist():
    metrics = {name.partition(".")[0] for name in UNITS}
    named = set(
        re.findall(r"`((?:output|total|ttft|tpot|itl|e2e|queue|acceptance|startup)_\w+)", README)
    )

    assert named
    assert {name.partition(".")[0] for name in named} <= metrics
    for preset in ("agent", "chat", "prompt-heavy", "decode-heavy", "balanced", "tg32", "tg512"):
        assert preset in PRESETS
