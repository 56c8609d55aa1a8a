import pytest

from tests.space_file.written import KNOWN, SMALLEST, only_problem_of, problems_of, space_of


def with_args(args: str) -> str:
    return SMALLEST + f"server:\n  args: {args}\n"


@pytest.mark.parametrize(
    "args",
    [
        '["--max-model-len", "65536", "--enable-prefix-caching", "--speculative-config", \'{"method":"mtp"}\']',
        "[--max-model-len 65536, --enable-prefix-caching, -sc.method, mtp]",
        '|\n    --max-model-len 65536 \\\n    --enable-prefix-caching -sc \'{"method": "mtp"}\'',
        "{max_model_len: 65536, enable_prefix_caching: true, speculative_config: {method: mtp}}",
        '{max_model_len: 65536, enable_prefix_caching: true, speculative_config: \'{"method":"mtp"}\'}',
    ],
)
def test_arguments_in_every_form_start_the_same_server(tmp_path, args):
    space = space_of(tmp_path, with_args(args))

    assert space.config({"max_num_seqs": 2}).argv() == (
        *("m", "--max-model-len", "65536", "--enable-prefix-caching"),
        *("--speculative-config", '{"method":"mtp"}', "--max-num-seqs", "2"),
    )


def test_values_keep_their_types_and_lists_become_words(tmp_path):
    text = with_args(
        "{cudagraph_capture_sizes: [1, 2, 4], lora_modules: [{name: a, path: b}], x: ~}"
    )

    args = space_of(tmp_path, text).server.args

    assert args == {
        "cudagraph_capture_sizes": [1, 2, 4],
        "lora_modules": ['{"name":"a","path":"b"}'],
        "x": None,
    }


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (
            "{max-model-len: 8}",
            "max-model-len: flags are written in snake_case here: max_model_len",
        ),
        (
            "{--max-model-len: 8}",
            "--max-model-len: flags are written in snake_case here: max_model_len",
        ),
        (
            "{no_async_scheduling: true}",
            "no_async_scheduling: write async_scheduling: false instead",
        ),
        ("{VLLM_X: 1}", "VLLM_X: is not a flag; an environment variable is written env.VLLM_X"),
        ("{env.X: 1}", "env.X: environment variables stand under server.env"),
        ("{model: m}", "model: cannot be set here: write it at the top of the file"),
        (
            "{port: 8000}",
            "port: cannot be set here: the launcher chooses it, so that no other server is measured by mistake",
        ),
        (
            "[--api-key, secret]",
            (
                "api_key: cannot be set here: a key would end up in logs and reports; "
                "set VLLM_API_KEY in the environment"
            ),
        ),
        (
            "{enforce_eager: on}",
            'enforce_eager: on is a switch to some YAML readers and text to others: write true, or "on" in quotes',
        ),
        (
            '{enforce_eager: "false"}',
            'enforce_eager: "false" in quotes is text, not a switch: write false',
        ),
        (
            "{enforce_eager: }",
            "enforce_eager: has no value; write true to switch it on, null to leave it to vLLM",
        ),
        (
            "{x: 12:30}",
            'x: 12:30 is a base-60 number to some YAML readers: write the plain number, or "12:30" in quotes',
        ),
        ("{x: []}", "x: is an empty list"),
        ("{x_config: '{bad'}", "x_config: is not a JSON object, or gives a key twice: {bad"),
        ("{a: {b: 1}, a.b: 2}", "a.b: is given twice (also as a.b)"),
        ("{a: 1, a.b: 2}", "a.b: is given twice (also as a)"),
        ("[--a, 1, --a, 2]", "a: is given twice (also as a)"),
    ],
)
def test_a_wrong_argument_is_told_with_its_place_and_the_way_out(tmp_path, args, problem):
    assert only_problem_of(tmp_path, with_args(args)) == f"space.yaml:5: server.args.{problem}"


def test_a_pasted_list_tells_every_mistake_at_its_own_line(tmp_path):
    text = SMALLEST + "server:\n  args:\n    - vllm\n    - --no-x\n    - 3\n    - -zz\n"

    assert problems_of(tmp_path, text) == [
        "space.yaml:6: server.args[0]: vllm is not a flag; the model stands at the top of the file",
        "space.yaml:7: server.args[1]: --no-x switches off and takes no value, but 3 follows",
        "space.yaml:9: server.args[3]: -zz is not a short form of vllm serve; write the long one",
    ]


@pytest.mark.parametrize(
    ("fixed", "knob", "held"),
    [
        ("args: {max_num_seqs: 4}", "max_num_seqs", "server.args (max_num_seqs)"),
        (
            "args: {speculative_config: {method: a}}",
            "speculative_config.method",
            "server.args (speculative_config.method)",
        ),
        (
            "args: {speculative_config.method: a}",
            "speculative_config",
            "server.args (speculative_config.method)",
        ),
        ("env: {VLLM_X: 1}", "env.VLLM_X", "server.env (env.VLLM_X)"),
    ],
)
def test_a_setting_is_either_held_or_turned(tmp_path, fixed, knob, held):
    text = f"model: m\nserver: {{{fixed}}}\nknobs:\n  {knob}: {{choices: [a, b]}}\n"

    assert only_problem_of(tmp_path, text) == (
        f"space.yaml:4: knobs.{knob}: is held fixed under {held}; keep it in one of the two"
    )


def test_environment_values_become_text_as_written(tmp_path):
    text = SMALLEST + 'server:\n  env: {A: 1, B: 0.90, C: "x y", D: on, E: 010, f: "true"}\n'

    assert space_of(tmp_path, text).server.env == {
        "A": "1",
        "B": "0.90",
        "C": "x y",
        "D": "on",
        "E": "010",
        "f": "true",
    }


def test_wrong_environment_entries_are_told(tmp_path):
    text = SMALLEST + "server:\n  env:\n    A-B: 1\n    env.C: 1\n    D: true\n    E: [1]\n    F:\n"

    assert problems_of(tmp_path, text) == [
        "space.yaml:6: server.env.A-B: is not the name of an environment variable",
        "space.yaml:7: server.env.env.C: is not the name of an environment variable; write C",
        'space.yaml:8: server.env.D: true is not text: write "1", "0" or "true" in quotes, as the program wants it',
        "space.yaml:9: server.env.E: must be text, not a list",
        'space.yaml:10: server.env.F: an empty value is not text: write "1", "0" or "" in quotes, as the program wants it',
    ]


def test_launcher_options_pass_through_with_their_place(tmp_path):
    text = (
        SMALLEST
        + "server: {launcher: docker, image: vllm/vllm-openai:v0.33, gpus: all, volumes: [a, 1]}\n"
    )

    launcher = space_of(tmp_path, text).server.launcher

    assert launcher.kind == "docker"
    assert launcher.options == {
        "image": "vllm/vllm-openai:v0.33",
        "gpus": "all",
        "volumes": ["a", 1],
    }
    assert launcher.where == f"{tmp_path}/space.yaml:4"


def test_an_unknown_launcher_lists_the_known_ones(tmp_path):
    text = SMALLEST + "server: {launcher: podman}\n"

    assert only_problem_of(tmp_path, text, KNOWN) == (
        "space.yaml:4: server.launcher: there is no launcher called 'podman'; "
        "choose from: local, simulated"
    )


def test_an_option_of_another_launcher_is_refused(tmp_path):
    text = SMALLEST + "server: {launcher: local, hardware: dgx-spark, lancher: x}\n"

    assert problems_of(tmp_path, text, KNOWN) == [
        (
            "space.yaml:4: server.hardware: the launcher local has no such option; "
            "choose from: args, env, executable, launcher, startup_timeout_s"
        ),
        "space.yaml:4: server.lancher: the launcher local has no such option; did you mean launcher?",
    ]


def test_a_misspelled_key_of_the_server_is_told_even_when_any_launcher_goes(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST + "server: {lancher: local}\n")

    assert problem == "space.yaml:4: server.lancher: there is no such key; did you mean launcher?"


@pytest.mark.parametrize(
    ("written", "read"),
    [("vllm", "vllm"), ("./v/bin/vllm", "{}/v/bin/vllm"), ("/opt/vllm", "/opt/vllm")],
)
def test_an_executable_with_a_slash_is_relative_to_the_file(tmp_path, written, read):
    space = space_of(tmp_path, SMALLEST + f"server: {{executable: {written}}}\n")

    assert space.server.launcher.options["executable"] == read.format(tmp_path)


def test_a_chat_template_beside_the_file_is_found_and_an_inline_one_stays(tmp_path):
    (tmp_path / "chat.jinja").write_text("x")
    template = "{chat_template: %s}"

    found = space_of(tmp_path, with_args(template % "chat.jinja")).server.args
    inline = space_of(tmp_path, with_args(template % '"{{ messages }}"')).server.args

    assert found == {"chat_template": f"{tmp_path}/chat.jinja"}
    assert inline == {"chat_template": "{{ messages }}"}


@pytest.mark.parametrize("written", ["0", "-3", "30m", ".inf", "[]"])
def test_a_start_up_time_is_a_number_above_zero(tmp_path, written):
    text = SMALLEST + f"server: {{startup_timeout_s: {written}}}\n"

    assert only_problem_of(tmp_path, text).startswith("space.yaml:4: server.startup_timeout_s: ")


def test_a_secret_in_the_file_is_refused_and_not_repeated(tmp_path):
    text = SMALLEST + "server:\n  env: {HF_TOKEN: hf_abc123, VLLM_USE_TOKENS: 1}\n"

    (problem,) = problems_of(tmp_path, text)

    assert "server.env.HF_TOKEN: a secret does not belong into a file" in problem
    assert "hf_abc123" not in problem
