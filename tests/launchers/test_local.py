import contextlib
import json
import os
import socket
import sys
from pathlib import Path

import pytest

from autotune.errors import HostError, LaunchError
from autotune.launchers.intents import FILENAME
from autotune.launchers.local import LocalLauncher
from autotune.model.serving_config import ServingConfig
from autotune.system.openai_client import probe_health
from autotune.system.processes import Mark, find_members, port_answers, start
from tests.fakes.bench import Recorder

FAKE = Path(__file__).parents[1] / "fakes" / "fake_vllm.py"


@pytest.fixture
def executable(tmp_path):
    path = tmp_path / "vllm"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" "{FAKE}" "$@"\n')
    path.chmod(0o755)
    return path


@pytest.fixture
def folder(tmp_path):
    path = tmp_path / "trial"
    path.mkdir()
    return path


def config(**modes):
    return ServingConfig(model="m", settings={"env.FAKE_VLLM": json.dumps(modes), "seed": 3})


def launch(executable, folder, *, port=None, timeout_s=20.0, **modes):
    launcher = LocalLauncher(
        executable=str(executable), port=port, startup_timeout_s=timeout_s, stop_grace_s=1.0
    )
    return launcher.launch(config(**modes), folder=folder, progress=Recorder())


def read_intent(folder):
    return json.loads((folder / FILENAME).read_text())


def members(folder):
    intent = read_intent(folder)
    return find_members(
        Mark(token=intent["token"], leader=intent.get("pid"), started=intent.get("started"))
    )


def test_a_ready_server_answers_inside_the_block_and_is_gone_after_it(executable, folder):
    with launch(executable, folder) as server:
        port = int(server.base_url.rpartition(":")[2])

        assert probe_health(server.base_url) == 200
        assert server.exit_code() is None
        assert server.max_model_len == 2048
        assert server.served_model.startswith("autotune-")

    assert not port_answers(port)
    assert members(folder) == []
    assert read_intent(folder)["gone"]


@pytest.mark.parametrize(
    "modes",
    [
        {"engine": True},
        {"engine": "detached"},
        {"engine": True, "ignore_term": True},
        {"engine": "detached", "ignore_term": True},
        {"engine": True, "leader_dies": True},
        {"engine": "detached", "leader_dies": True},
    ],
    ids=json.dumps,
)
def test_the_whole_process_tree_is_gone_whatever_it_does(executable, folder, modes):
    with contextlib.suppress(LaunchError), launch(executable, folder, **modes):
        assert len(members(folder)) >= 1

    intent = read_intent(folder)
    assert find_members(Mark(token=intent["token"])) == []
    assert members(folder) == []


def test_a_refused_configuration_fails_with_the_lines_own_family(executable, folder):
    line = "ValueError: No available memory for the cache blocks. Try increasing it"

    with pytest.raises(LaunchError) as error, launch(executable, folder, refuse=line):
        pass

    assert error.value.family == "kv_cache_too_small"
    assert "No available memory" in error.value.message
    assert error.value.hint


def test_exit_code_zero_that_nobody_asked_for_is_a_failure(executable, folder):
    with pytest.raises(LaunchError) as error, launch(executable, folder, exit_zero=True):
        pass

    assert error.value.family == "engine_died"


def test_a_server_that_never_gets_ready_is_given_up_and_gone(executable, folder):
    with (
        pytest.raises(LaunchError) as error,
        launch(executable, folder, never_ready=True, engine=True, timeout_s=1.0),
    ):
        pass

    assert error.value.family == "hang"
    assert members(folder) == []


def test_health_alone_is_not_ready(executable, folder):
    with pytest.raises(LaunchError) as error, launch(executable, folder, fails_questions=True):
        pass

    assert error.value.family in ("engine_died", "unsupported")
    assert members(folder) == []


def test_a_server_of_another_name_is_never_measured(executable, folder):
    with (
        pytest.raises(LaunchError, match="somebody-else"),
        launch(executable, folder, other_name=True),
    ):
        pass


def test_a_port_that_another_server_answers_on_is_refused_before_anything_starts(
    executable, folder
):
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]

        with pytest.raises(LaunchError) as error, launch(executable, folder, port=port):
            pass

    assert error.value.family == "port_in_use"
    assert not (folder / "server.json").exists()


def test_a_server_given_up_earlier_that_comes_up_late_is_never_taken_for_ours(
    executable, folder, tmp_path
):
    """The late one listens on the port between our look at it and our server's start."""
    other = tmp_path / "other"
    other.mkdir()
    with launch(executable, other) as late:
        port = int(late.base_url.rpartition(":")[2])
        from autotune.launchers.readiness import Awaited, wait_until_ready
        from autotune.system.clock import SystemClock

        ours = start(
            [sys.executable, "-c", "import time; time.sleep(60)"],
            token="ours",
            log=folder / "server.log",
        )
        try:
            with pytest.raises(LaunchError, match="did not start") as error:
                wait_until_ready(
                    Awaited(
                        child=ours,
                        base_url=late.base_url,
                        port=port,
                        served_model=late.served_model,
                        log=folder / "server.log",
                    ),
                    timeout_s=10,
                    clock=SystemClock(),
                    report=Recorder(),
                )
        finally:
            ours.stop(grace_s=1)

    assert error.value.family == "port_in_use"


def test_a_missing_executable_is_a_matter_of_the_host(tmp_path, folder):
    with pytest.raises(HostError, match="no executable"), launch(tmp_path / "nothing", folder):
        pass


def test_output_of_megabytes_stands_in_nobodys_way(executable, folder):
    with launch(executable, folder, flood=True) as server:
        assert probe_health(server.base_url) == 200

    assert (folder / "server.log").stat().st_size > 5_000_000


def test_what_a_killed_run_left_behind_is_found_and_stopped(executable, folder):
    context = launch(executable, folder, engine="detached")
    context.__enter__()
    found = members(folder)
    assert len(found) >= 2
    launcher = LocalLauncher(executable=str(executable))

    what = launcher.reap(folder)

    assert what is not None
    assert members(folder) == []
    assert launcher.reap(folder) is None
    with contextlib.suppress(Exception):
        context.__exit__(None, None, None)


def test_a_process_id_that_was_given_to_somebody_else_is_left_alone(tmp_path):
    stranger = start(
        [sys.executable, "-c", "import time; time.sleep(60)"],
        token="strange",
        log=tmp_path / "log",
    )
    try:
        mark = Mark(token="ours", leader=stranger.pid, started=(stranger.started or 0) - 100)

        assert find_members(mark) == []
    finally:
        stranger.stop(grace_s=1)


def test_the_token_is_on_disk_before_the_start_and_in_the_environment_after(executable, folder):
    with launch(executable, folder):
        intent = read_intent(folder)
        environment = Path(f"/proc/{intent['pid']}/environ").read_bytes()

        assert f"AUTOTUNE_TOKEN={intent['token']}".encode() in environment
        assert os.getpgid(intent["pid"]) == intent["pid"]


def test_the_command_of_a_python_runs_vllms_own_entry(tmp_path):
    del tmp_path
    command = LocalLauncher(executable="/opt/env/bin/python3.12").command(config())

    assert command[:4] == ("/opt/env/bin/python3.12", "-m", "vllm.entrypoints.cli.main", "serve")
    assert command[4:] == ("m", "--seed", "3")


def test_an_earlier_log_does_not_explain_a_new_start(executable, folder):
    old = "ValueError: No available memory for the cache blocks"
    (folder / "server.log").write_text(old)

    with pytest.raises(LaunchError) as error, launch(executable, folder, exit_zero=True):
        pass

    assert error.value.family == "engine_died"
    (kept,) = folder.glob("server.earlier-*.log")
    assert kept.read_text() == old
