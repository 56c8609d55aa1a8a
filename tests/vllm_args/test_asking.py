"""vLLM is asked through its own parser, then its help, and a shipped list answers for it at last."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from autotune.vllm_args import known_arguments
from autotune.vllm_args.asking import python_of
from autotune.vllm_args.help_text import arguments_in_help

FAKE_VLLM = {
    "__init__.py": "print('INFO: a log line on stdout {')",
    "utils/__init__.py": "",
    "utils/argparse_utils.py": """
import argparse

class FlexibleArgumentParser(argparse.ArgumentParser):
    pass

def human_readable_int(text):
    return int(text)

def optional_type(kind):
    def _optional_type(text):
        return kind(text)
    return _optional_type
""",
    "entrypoints/__init__.py": "",
    "entrypoints/openai/__init__.py": "",
    "entrypoints/openai/cli_args.py": """
import argparse, json
from vllm.utils.argparse_utils import human_readable_int, optional_type

def make_arg_parser(parser):
    parser.add_argument("model_tag", nargs="?")
    parser.add_argument("--max-num-seqs", "-m", type=int, default=4)
    parser.add_argument("--max-num-batched-tokens", type=optional_type(human_readable_int))
    parser.add_argument("--moe-backend", choices=["auto", "flash_x"],
                        type=lambda text: text.lower().replace("-", "_"))
    parser.add_argument("--enable-x", action=argparse.BooleanOptionalAction)
    parser.add_argument("--headless", action="store_true")
    parser.add_argument("--speculative-config", "-sc", type=optional_type(json.loads))
    parser.add_argument("--sizes", nargs="+", type=int)
    parser.add_argument("--attention-backend")
    return parser
""",
    "config/__init__.py": "",
    "config/speculative.py": """
from dataclasses import dataclass
from typing import Literal

@dataclass
class SpeculativeConfig:
    method: Literal["mtp", "ngram"] | None = None
    num_speculative_tokens: int | None = None
""",
    "v1/__init__.py": "",
    "v1/attention/__init__.py": "",
    "v1/attention/backends/__init__.py": "",
    "v1/attention/backends/registry.py": """
import enum
class AttentionBackendEnum(enum.Enum):
    FLASH = 1
""",
    "envs.py": "environment_variables = {'VLLM_A': None}",
}


@pytest.fixture
def vllm(tmp_path: Path) -> Path:
    """Make a tiny `vllm` package, its metadata and its script."""
    for name, text in FAKE_VLLM.items():
        path = tmp_path / "site" / "vllm" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    metadata = tmp_path / "site" / "vllm-0.29.3+fake.dist-info" / "METADATA"
    metadata.parent.mkdir()
    metadata.write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.29.3+fake\n")
    return executable(tmp_path / "bin" / "vllm", f"#!{sys.executable}\nraise SystemExit(3)\n")


def executable(path: Path, text: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def run_here(site: Path):
    def run(argv: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
        ended = subprocess.run(
            argv,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "PYTHONPATH": str(site)},
        )
        return ended.returncode, ended.stdout

    return run


def test_the_parser_of_the_vllm_that_will_run_is_asked_under_its_own_python(vllm: Path):
    arguments = known_arguments(str(vllm), run=run_here(vllm.parents[1] / "site"))
    assert arguments.origin == "vLLM 0.29.3's own parser"
    assert arguments.version == "0.29.3"
    kinds = {name: argument.kind for name, argument in arguments.by_name.items()}
    assert kinds == {
        "max_num_seqs": "integer",
        "max_num_batched_tokens": "human_integer",
        "moe_backend": "text",
        "enable_x": "pair",
        "no_enable_x": "pair",
        "headless": "switch",
        "speculative_config": "json",
        "sizes": "integer",
        "attention_backend": "text",
    }
    assert arguments.by_name["max_num_seqs"].default == 4
    assert arguments.by_name["sizes"].many
    assert arguments.by_name["moe_backend"].knows("Flash-X")
    assert not arguments.by_name["moe_backend"].knows("flashx")
    # What the parser takes and the configuration refuses later on.
    assert arguments.by_name["attention_backend"].choices == ("auto", "FLASH")
    assert arguments.speculative_keys == {"method": ("mtp", "ngram"), "num_speculative_tokens": ()}
    assert arguments.variables == frozenset({"VLLM_A"})


def test_a_python_is_asked_directly(vllm: Path):
    arguments = known_arguments(sys.executable, run=run_here(vllm.parents[1] / "site"))
    assert arguments.origin == "vLLM 0.29.3's own parser"


def test_a_vllm_whose_parser_cannot_be_built_still_tells_its_version(vllm: Path):
    site = vllm.parents[1] / "site"
    (site / "vllm" / "entrypoints" / "openai" / "cli_args.py").write_text("raise ImportError('no')")
    arguments = known_arguments(str(vllm), run=run_here(site))
    assert arguments.origin == (
        f"shipped list for 0.32, the nearest to 0.29.3 ({vllm} did not answer)"
    )


HELP = """\
usage: vllm serve [model_tag] [options]

positional arguments:
  model_tag             The model

options:
  --api-server-count API_SERVER_COUNT, -asc API_SERVER_COUNT
                        How many. See --max-num-seqs, or
                        --nothing. (default: None)
  --api-key API_KEY [API_KEY ...]
  --grpc                Launch it.
  --enable-x, --no-enable-x
                        Text.
  --moe-backend {auto,flash_x}
  -h, --help            show this help message and exit
"""
MORE_HELP = "".join(f"  --flag-{number} VALUE       text\n" for number in range(60))


def test_the_help_answers_where_the_parser_does_not(tmp_path: Path):
    script = executable(tmp_path / "vllm", "#!/bin/sh\nexit 1\n")
    asked: list[Sequence[str]] = []

    def run(argv: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
        assert timeout_s > 0
        asked.append(argv)
        return (0, HELP + MORE_HELP) if "--help=all" in argv else (None, "")

    arguments = known_arguments(str(script), run=run)
    assert arguments.origin == "the text of `vllm serve --help=all`"
    assert asked[-1] == [str(script), "serve", "--help=all"]
    names = arguments.by_name
    assert names["api_server_count"].flags == ("--api-server-count", "-asc")
    assert names["api_key"].many
    assert (names["grpc"].kind, names["enable_x"].kind) == ("switch", "pair")
    assert names["moe_backend"].choices == ("auto", "flash_x")
    assert "max_num_seqs" not in names


def test_the_text_of_another_program_is_not_taken_for_a_help():
    assert arguments_in_help("usage: true\n  --help   show this\n") is None
    assert arguments_in_help("") is None


@pytest.mark.parametrize("answer", [(None, ""), (1, "{}"), (0, "{"), (0, "[]"), (0, '{"a": 1}')])
def test_a_shipped_list_answers_for_a_vllm_that_does_not(
    tmp_path: Path, answer: tuple[int | None, str]
):
    script = executable(tmp_path / "vllm", f"#!{sys.executable}\n")
    arguments = known_arguments(str(script), run=lambda argv, timeout_s: answer)
    assert arguments.origin == f"shipped list for 0.33 ({script} did not answer)"


def test_a_description_of_another_form_is_not_guessed_at(tmp_path: Path):
    script = executable(tmp_path / "vllm", f"#!{sys.executable}\n")
    broken = {"schema_version": 1, "version": "0.26.0", "arguments": [{"no": "flags"}]}
    arguments = known_arguments(str(script), run=lambda argv, timeout_s: (0, json.dumps(broken)))
    assert arguments.origin.startswith("shipped list for 0.26 (")


def test_a_vllm_that_is_not_here_or_cannot_be_started_is_stood_in_for(tmp_path: Path):
    def run(argv: Sequence[str], timeout_s: float) -> tuple[int | None, str]:
        raise PermissionError(argv[0])

    script = executable(tmp_path / "vllm", f"#!{sys.executable}\n")
    assert known_arguments(str(script), run=run).version == "0.33.0"
    missing = known_arguments(str(tmp_path / "nowhere"), run=run)
    assert "there is no" in missing.origin
    assert known_arguments(None, run=run).origin == "shipped list for 0.33"
    assert known_arguments(str(script), run=run, version="0.26").version == "0.26.0"


def test_the_python_of_a_script_is_what_its_first_lines_say(tmp_path: Path):
    direct = executable(tmp_path / "direct", f"#!{sys.executable}\n")
    # pip's detour for long paths.
    detour = executable(
        tmp_path / "detour", f"#!/bin/sh\n'''exec' \"{sys.executable}\" \"$0\" \"$@\"\n' '''\n"
    )
    assert python_of(str(direct)) == python_of(str(detour)) == sys.executable


def test_the_python_beside_a_script_is_taken_where_the_script_does_not_say(tmp_path: Path):
    script = executable(tmp_path / "bin" / "vllm", "#!/usr/bin/env python3\n")
    assert python_of(str(script)) is None
    beside = executable(tmp_path / "bin" / "python3", "")
    link = tmp_path / "vllm"
    link.symlink_to(script)
    assert python_of(str(script)) == python_of(str(link)) == str(beside)
