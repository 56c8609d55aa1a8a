import dataclasses
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from autotune.errors import SearchSpaceError
from autotune.model.knob import Condition
from autotune.model.search_space import Limits, Part
from autotune.space_file import read_search_space
from tests.space_file.written import KNOWN, SMALLEST, only_problem_of, problems_of, space_of, write

EVERY_KEY = """\
name: spark-full
model: ./weights
server:
  launcher: local
  executable: ../venv/bin/vllm
  startup_timeout_s: 900
  args:
    max_model_len: 65536
    kv_cache_dtype: fp8
    enable_prefix_caching: true
    speculative_config: {method: mtp, moe_backend: triton}
    override_generation_config: '{"temperature": 0.6, "top_k": 20}'
    chat_template: template.jinja
  env:
    FLASHINFER_DISABLE_VERSION_CHECK: 1
    CUTE_DSL_ARCH: sm_121a
baseline:
  max_num_seqs: 4
  max_num_batched_tokens: 8192
  gpu_memory_utilization: 0.85
  speculative_config.num_speculative_tokens: 3
knobs:
  moe_backend: {choices: [marlin, triton], sweep: true}
  speculative_config.num_speculative_tokens: {type: int, low: 0, high: 4}
  speculative_config.attention_backend:
    choices: [flash_attn, flashinfer]
    when:
      speculative_config.num_speculative_tokens: ">= 1"
      speculative_config.method: mtp
      moe_backend: [marlin, triton]
  max_num_seqs: {type: int, low: 1, high: 64, doubling: true}
  max_num_batched_tokens: {type: int, low: 2048, high: 16384, log: true}
  gpu_memory_utilization: {type: float, low: 0.7, high: 0.95, step: 0.05}
  async_scheduling: {type: flag, sweep: false}
  env.VLLM_USE_X: {choices: ["0", "1"]}
rules:
  - max_num_batched_tokens >= max_num_seqs
  - max_num_batched_tokens <= max_model_len
workloads:
  agent: {preset: agent, concurrency: [1, 8], requests: [64, 96], seed: 7}
  long: {input_tokens: 8000, output_tokens: 1000, concurrency: 4, requests: 40}
objectives:
  - output_tok_s
  - {metric: ttft_ms.p95, workload: agent, concurrency: 8, direction: minimize}
  - ttft_ms.p50@long
constraints:
  - ttft_ms.p95@agent:8 <= 500
gates:
  json_schema: {cases: 5}
  tool_calls: true
  fixtures: {file: cases.json}
repeats: 2
limits: {trials: 40, hours: 8.5, until: 7:00}
search: {sampler: tpe, startup: 8}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Hold what the full file points at."""
    (tmp_path / "weights").mkdir()
    (tmp_path / "cases.json").write_text("{}")
    (tmp_path / "template.jinja").write_text("{{ messages }}")
    return tmp_path


def test_a_file_with_every_key_becomes_the_whole_space(folder):
    space = space_of(folder, EVERY_KEY, KNOWN)

    assert (space.name, space.repeats) == ("spark-full", 2)
    assert space.limits == Limits(trials=40, hours=8.5, until="07:00")
    assert space.sampler == Part(
        kind="tpe", options={"startup": 8}, where=f"{folder / 'space.yaml'}:54"
    )
    assert [gate.kind for gate in space.gates] == ["json_schema", "tool_calls", "fixtures"]
    assert [workload.requests for workload in space.workloads] == [(64, 96), (40,)]
    assert [objective.name for objective in space.objectives] == [
        "output_tok_s",
        "ttft_ms.p95",
        "ttft_ms.p50",
    ]
    assert [constraint.label for constraint in space.constraints] == ["ttft_ms.p95@agent:8 <= 500"]
    assert space.source == folder / "space.yaml"


def test_the_baseline_of_a_full_file_renders_the_command_as_meant(folder):
    space = space_of(folder, EVERY_KEY, KNOWN)

    command = space.config(space.baseline).command()

    assert command == (
        "FLASHINFER_DISABLE_VERSION_CHECK=1 CUTE_DSL_ARCH=sm_121a VLLM_USE_X=0 "
        f"vllm serve {folder}/weights --max-model-len 65536 --kv-cache-dtype fp8 "
        "--enable-prefix-caching --speculative-config "
        '\'{"method":"mtp","moe_backend":"triton","num_speculative_tokens":3,'
        '"attention_backend":"flash_attn"}\' '
        '--override-generation-config \'{"temperature":0.6,"top_k":20}\' '
        f"--chat-template {folder}/template.jinja --moe-backend marlin --max-num-seqs 4 "
        "--max-num-batched-tokens 8192 --gpu-memory-utilization 0.85 --no-async-scheduling"
    )


def test_a_condition_on_a_key_of_a_fixed_json_flag_is_settled_when_the_file_is_read(folder):
    knob = space_of(folder, EVERY_KEY, KNOWN).knob("speculative_config.attention_backend")

    assert knob.when == (
        Condition(name="speculative_config.num_speculative_tokens", operator=">=", operands=(1,)),
        Condition(name="moe_backend", operator="==", operands=("marlin", "triton")),
    )


def test_the_smallest_file_has_the_documented_defaults(tmp_path):
    space = space_of(tmp_path, SMALLEST)

    assert space.name == "space"
    assert space.server.launcher.kind == "local"
    assert space.baseline == {"max_num_seqs": 1}
    assert [(w.name, w.preset) for w in space.workloads] == [("agent", "agent")]
    highest = max(space.workloads[0].concurrency)
    assert [(o.name, o.quantity.concurrency, o.direction) for o in space.objectives] == [
        ("output_tok_s", highest, "maximize"),
        ("ttft_ms.p50", highest, "minimize"),
    ]
    assert [gate.kind for gate in space.gates] == ["json_schema", "tool_calls"]
    assert (space.repeats, space.limits, space.sampler.kind) == (3, Limits(), "serving")


def test_sections_that_hold_nothing_count_as_left_out(tmp_path):
    empty = "server:\nbaseline:\nrules:\nworkloads:\nobjectives:\nconstraints:\nlimits:\nsearch:\n"

    space = space_of(tmp_path, SMALLEST + empty)

    assert dataclasses.replace(space, source=None) == dataclasses.replace(
        space_of(tmp_path, SMALLEST),
        source=None,
        server=space.server,
    )


def test_five_planted_mistakes_give_five_messages_in_the_order_of_the_file(tmp_path):
    text = """\
    modle: Qwen/Qwen3.6-35B-A3B-FP8
    server:
      args: {max_model_len: 010}
    knobs:
      max_num_seqs: {type: int, low: 512, high: 64}
      moe_backend: {chioces: [marlin, triton]}
      attention_backend: {choices: [flashinfer, triton]}
    rules: [max_num_seqs <= max_model_len]
    baseline: {attention_backend: flashinfr}
    """

    assert problems_of(tmp_path, text) == [
        "space.yaml:1: modle: there is no such key; did you mean model?",
        (
            "space.yaml:3: server.args.max_model_len: 010 with a leading zero is octal to some YAML "
            'readers: write 10, or "010" in quotes'
        ),
        "space.yaml:5: knobs.max_num_seqs: low 512 is not below high 64",
        "space.yaml:6: knobs.moe_backend.chioces: there is no such key; did you mean choices?",
        (
            "space.yaml:9: baseline.attention_backend: flashinfr is not on the knob's grid; "
            "did you mean flashinfer?"
        ),
    ]


def test_a_typo_in_a_key_names_the_key_that_was_meant(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST + "limits: {trails: 40}\n")

    assert problem == "space.yaml:4: limits.trails: there is no such key; did you mean trials?"


def test_what_is_needed_and_missing_is_told(tmp_path):
    assert problems_of(tmp_path, "repeats: 3\n") == [
        "space.yaml:1: knobs: is missing: which settings may turn?",
        "space.yaml:1: model: is missing: a folder, or a name such as Qwen/Qwen3.6-35B-A3B-FP8",
    ]


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("repeats: 0", "repeats: must be from 1 to 20, not 0"),
        ("repeats: 1.5", "repeats: must be a whole number, not 1.5"),
        ('repeats: "3"', 'repeats: must be a whole number, without quotes, not "3"'),
        ("repeats: .nan", "repeats: .nan is not a finite number"),
        ("repeats: [3]", "repeats: must be a whole number, not a list"),
        (
            "name: a/b",
            "name: must be made of letters, digits, - _ and ., as it names the study's folder",
        ),
        ("name: 2024", 'name: must be text, not 2024; write "2024" in quotes if that is meant'),
        ("name:", "name: must be a name, not nothing"),
        ("limits: {trials: 0}", "limits.trials: must be from 1 to 1000000, not 0"),
        ("limits: {hours: -1}", "limits.hours: must be hours above 0, not -1"),
        (
            "limits: {until: 25:00}",
            'limits.until: must be a time of day such as "07:00", not 25:00',
        ),
    ],
)
def test_a_wrong_value_is_told_with_what_is_legal(tmp_path, line, problem):
    assert only_problem_of(tmp_path, SMALLEST + line + "\n") == f"space.yaml:4: {problem}"


@pytest.mark.parametrize(("written", "read"), [("7:00", "07:00"), ('"22:30"', "22:30")])
def test_a_time_of_day_is_read_as_one_although_yaml_takes_it_for_base_60(tmp_path, written, read):
    assert space_of(tmp_path, SMALLEST + f"limits: {{until: {written}}}\n").limits.until == read


def test_the_exponent_form_counts_as_a_number_where_one_is_due(tmp_path):
    assert space_of(tmp_path, SMALLEST + "limits: {trials: 1e3}\n").limits.trials == 1000


def test_a_model_folder_is_found_beside_the_file_and_a_hub_name_stays(tmp_path):
    (tmp_path / "weights").mkdir()
    named = SMALLEST.replace("model: m", "model: %s")

    assert space_of(tmp_path, named % "weights").model == f"{tmp_path}/weights"
    assert space_of(tmp_path, named % "../x").model == f"{tmp_path.parent}/x"
    assert space_of(tmp_path, named % "org/name").model == "org/name"
    assert space_of(tmp_path, named % "~/m").model == str(Path("~/m").expanduser())


def test_a_model_that_would_be_read_as_a_flag_is_refused(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST.replace("model: m", "model: --port"))

    assert problem == "space.yaml:1: model: --port looks like a flag"


def test_a_copy_is_read_relative_to_where_its_original_stood(folder, tmp_path_factory):
    study = tmp_path_factory.mktemp("study")
    original = space_of(folder, EVERY_KEY, KNOWN)
    (folder / "cases.json").unlink()

    copy = read_search_space(write(study, EVERY_KEY), vocabulary=KNOWN, relative_to=folder)

    assert copy.model == original.model
    assert copy.gates[2].options == original.gates[2].options


def test_problems_show_the_path_as_the_user_gave_it(tmp_path, monkeypatch):
    write(tmp_path, "repeats: 3\n")
    monkeypatch.chdir(tmp_path)

    with pytest.raises(SearchSpaceError, match=r"^space\.yaml:1: "):
        read_search_space(Path("space.yaml"))


def test_a_file_full_of_mistakes_is_not_told_to_its_end(tmp_path):
    text = "".join(f"key{number}: 1\n" for number in range(5000))

    assert len(problems_of(tmp_path, text)) == 200


WORDS = st.sampled_from(
    [
        *("name", "model", "server", "args", "env", "knobs", "baseline", "rules", "workloads"),
        *("objectives", "constraints", "gates", "repeats", "limits", "until", "search", "a", "b"),
        *("choices", "type", "int", "float", "flag", "low", "high", "step", "log", "doubling"),
        *("when", "sweep", "preset", "agent", "metric", "ttft_ms.p95", "a >= b", "~", "on", "1e3"),
        *(
            "010",
            "1:30",
            ".nan",
            "0.1",
            "-3",
            "1",
            "8",
            "<<",
            "&x",
            "*x",
            "{}",
            "[]",
            '"',
            "|",
            "--a",
        ),
    ]
)
DOCUMENTS = st.recursive(
    WORDS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: f"[{', '.join(items)}]"),
        st.lists(st.tuples(WORDS, inner), max_size=5).map(
            lambda pairs: "{" + ", ".join(f"{key}: {value}" for key, value in pairs) + "}"
        ),
    ),
    max_leaves=25,
)
LINES = st.lists(st.tuples(WORDS, DOCUMENTS), max_size=8).map(
    lambda pairs: "".join(f"{key}: {value}\n" for key, value in pairs)
)


def problems_in(path: Path) -> list[str]:
    try:
        read_search_space(path, vocabulary=KNOWN)
    except SearchSpaceError as error:
        return error.problems or ["refused without a reason"]
    return []


WELL_FORMED = r".*/space\.yaml(:[0-9]+)?: .+$"
ROUGH = settings(
    max_examples=150,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)


@ROUGH
@given(text=st.one_of(LINES, LINES.map(lambda text: SMALLEST + text), st.text()))
def test_any_text_is_read_or_refused_with_problems(tmp_path, text):
    path = tmp_path / "space.yaml"
    path.write_bytes(text.encode("utf-8", "surrogatepass"))

    assert all(re.match(WELL_FORMED, problem) for problem in problems_in(path))


@ROUGH
@given(data=st.binary(max_size=200))
def test_any_bytes_are_read_or_refused_with_problems(tmp_path, data):
    path = tmp_path / "space.yaml"
    path.write_bytes(data)

    assert all(re.match(WELL_FORMED, problem) for problem in problems_in(path))


FIELDS = st.sampled_from(
    [
        *("choices", "type", "low", "high", "step", "log", "doubling", "when", "sweep"),
        *("preset", "input_tokens", "output_tokens", "concurrency", "requests", "seed"),
        *("metric", "workload", "direction"),
    ]
)
VALUES = st.sampled_from(
    [
        *("", "~", "1", "2", "8", "0.5", "1e3", "true", "off", "agent", "int", "float", "flag"),
        *(
            "[1, 2]",
            "[1, 8]",
            "[]",
            "[8, 8]",
            "[a, b]",
            "{}",
            "{k0: 1}",
            "output_tok_s",
            "maximize",
        ),
        *("ttft_ms.p50 <= 3", "k0 >= k1", "k0 > 0"),
    ]
)
ENTRIES = st.one_of(
    VALUES,
    st.dictionaries(FIELDS, VALUES, max_size=4).map(
        lambda fields: "{" + ", ".join(f"{key}: {value}" for key, value in fields.items()) + "}"
    ),
)
SECTIONS = st.sampled_from(["knobs", "workloads", "objectives", "constraints", "rules"])


@ROUGH
@given(section=SECTIONS, entries=st.lists(ENTRIES, min_size=1, max_size=3))
def test_an_entry_is_read_or_refused_but_never_dropped(tmp_path, section, entries):
    named = section in ("knobs", "workloads")
    lines = [f"  {f'k{n}:' if named else '-'} {entry}\n" for n, entry in enumerate(entries)]
    rest = SMALLEST if section != "knobs" else "model: m\n"
    path = write(tmp_path, f"{rest}{section}:\n{''.join(lines)}")

    if not problems_in(path):
        assert len(getattr(read_search_space(path), section)) == len(entries)
