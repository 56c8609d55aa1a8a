"""What every launcher of the table promises. One that is added is tested unasked."""

import sys
from pathlib import Path
from typing import Any

import pytest

from autotune.errors import LaunchError
from autotune.launchers import LAUNCHERS
from autotune.model.serving_config import ServingConfig
from autotune.system.openai_client import probe_health
from tests.fakes.bench import Recorder

FAKE = Path(__file__).parents[1] / "fakes" / "fake_vllm.py"
CONFIG = ServingConfig(model="nvidia/Qwen3.6-35B-A3B-NVFP4", settings={"max_num_seqs": 4})


@pytest.fixture(params=sorted(LAUNCHERS))
def launcher(request, tmp_path):
    """Each launcher, set up so that it can serve here."""
    executable = tmp_path / "vllm"
    executable.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    executable.chmod(0o755)
    options: dict[str, dict[str, Any]] = {
        "local": {"executable": str(executable)},
        "simulated": {"time_scale": 100, "startup_scale": 1e6},
    }
    return LAUNCHERS[request.param](**options[request.param], stop_grace_s=2.0)


def test_it_serves_inside_the_block_under_a_name_of_its_own_and_is_gone_after_it(
    launcher, tmp_path
):
    folders = [tmp_path / "one", tmp_path / "two"]
    for folder in folders:
        folder.mkdir()
    names = []

    for folder in folders:
        with launcher.launch(CONFIG, folder=folder, progress=Recorder()) as server:
            assert probe_health(server.base_url) == 200
            assert server.base_url.startswith("http://127.0.0.1:")
            assert server.exit_code() is None
            assert server.startup_s > 0
            names.append(server.served_model)
        assert probe_health(server.base_url) is None
        assert server.exit_code() is not None
        assert (folder / "server.log").exists()
        assert launcher.reap(folder) is None

    assert len(set(names)) == 2


def test_its_command_holds_the_whole_configuration(launcher):
    command = launcher.command(CONFIG)

    assert command[-len(CONFIG.argv()) :] == CONFIG.argv()


def test_a_configuration_that_is_refused_is_a_launch_error_with_a_family(launcher, tmp_path):
    from autotune.model.diagnosis import FAMILIES

    bad = ServingConfig(
        model=CONFIG.model,
        settings={
            "no_such_flag": 1,
            "env.FAKE_VLLM": '{"refuse": "vllm: error: unrecognized arguments: --no-such-flag 1"}',
        },
    )

    with (
        pytest.raises(LaunchError) as error,
        launcher.launch(bad, folder=tmp_path, progress=Recorder()),
    ):
        pass

    assert error.value.family == "invalid_config"
    assert error.value.family in FAMILIES
    assert "--no-such-flag" in error.value.message


def test_its_options_are_checked_by_their_types():
    from autotune.errors import SearchSpaceError
    from autotune.model.search_space import Part
    from autotune.wiring import _build

    for name, kind in LAUNCHERS.items():
        part = Part(kind=name, options={"port": "eighty"}, where="space.yaml:3")
        with pytest.raises(SearchSpaceError, match=r"space\.yaml:3: port"):
            _build(kind, part)
