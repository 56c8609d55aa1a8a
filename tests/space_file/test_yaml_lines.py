import pytest
import yaml

from autotune.errors import SearchSpaceError
from autotune.space_file import read_search_space, yaml_lines
from autotune.space_file.problems import Problems
from autotune.space_file.yaml_lines import Items, Scalar, Table, read_yaml
from tests.space_file.written import SMALLEST, only_problem_of, problems_of, space_of, write


@pytest.fixture(params=["CSafeLoader", "SafeLoader"])
def either_parser(request, monkeypatch):
    """Run with libyaml's parser and with PyYAML's own, which stands in where there is no libyaml."""
    monkeypatch.setattr(yaml_lines, "_LOADER", getattr(yaml, request.param))


def test_nodes_know_their_lines(tmp_path):
    path = write(tmp_path, "a: 1\nb:\n  - x\n  - 'y'\n")

    root = read_yaml(path, Problems(file=path))

    assert isinstance(root, Table)
    assert root.entries["a"].node == Scalar(text="1", plain=True, line=1)
    assert root.entries["b"].line == 2
    assert root.entries["b"].node == Items(
        items=(Scalar(text="x", plain=True, line=3), Scalar(text="y", plain=False, line=4)), line=3
    )


def test_a_missing_file_is_told_with_the_one_that_was_meant(tmp_path):
    (tmp_path / "spark.yaml").write_text(SMALLEST)

    with pytest.raises(SearchSpaceError) as caught:
        read_search_space(tmp_path / "sprak.yaml")

    assert caught.value.problems == [f"{tmp_path}/sprak.yaml: there is no such file"]
    assert caught.value.hint == f"Did you mean {tmp_path}/spark.yaml?"


def test_a_missing_folder_is_told(tmp_path):
    with pytest.raises(SearchSpaceError) as caught:
        read_search_space(tmp_path / "nowhere" / "spark.yaml")

    assert caught.value.hint == f"There is no folder {tmp_path}/nowhere either."


def test_a_folder_in_place_of_a_file_is_told(tmp_path):
    with pytest.raises(SearchSpaceError, match="is a folder, not a search-space file"):
        read_search_space(tmp_path)


def test_a_name_that_no_file_can_have_is_told(tmp_path):
    with pytest.raises(SearchSpaceError, match="cannot be read: File name too long"):
        read_search_space(tmp_path / ("x" * 300))


def test_a_file_that_is_not_text_is_refused_at_its_line(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_bytes(b"model: m\nname: caf\xe9\n")

    with pytest.raises(SearchSpaceError) as caught:
        read_search_space(path)

    assert caught.value.problems == [f"{path}:2: is not UTF-8 text (byte 0xe9)"]


def test_a_file_saved_on_windows_is_read(tmp_path):
    path = tmp_path / "space.yaml"
    path.write_bytes(b"\xef\xbb\xbf" + SMALLEST.replace("\n", "\r\n").encode())

    assert read_search_space(path).model == "m"


def test_a_huge_file_is_refused_unread(tmp_path):
    problem = only_problem_of(tmp_path, "#" * 300_000)

    assert problem == "space.yaml: is larger than 256 KiB; that is no search-space file"


@pytest.mark.parametrize("text", ["", "# nothing but a comment\n"])
def test_an_empty_file_is_told(tmp_path, text):
    problem = only_problem_of(tmp_path, text)

    assert problem == "space.yaml:1: the file is empty; a search space has at least model and knobs"


@pytest.mark.parametrize("text", ["- a\n", "text\n", "---\n"])
def test_a_file_that_is_no_mapping_is_told(tmp_path, text):
    assert "must be a mapping with the keys model, knobs" in only_problem_of(tmp_path, text)


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\n---\nb: 2\n", 2, "a second document starts here"),
        ("model:\n\tname: x\n", 2, "it holds a tab: indent with spaces"),
        ("knobs:\n  a: {when: {b: >= 1}}\n", 2, 'put comparisons in quotes: ">= 1"'),
        ("when: > 1\n", 1, 'put comparisons in quotes: ">= 1"'),
        ("a: b: c\n", 1, "quote text that holds a colon and a space"),
        ("a: *x\n", 1, "undefined alias"),
        ("a: [1, 2\n", 1, "not YAML"),
        ('a: "open\n', 1, "not YAML"),
        ('a: "x\0"\n', 1, "the character 0x0000 is not allowed"),
    ],
)
def test_a_syntax_error_has_its_line_and_a_way_out(tmp_path, text, line, words):
    problem = only_problem_of(tmp_path, text)

    assert problem.startswith(f"space.yaml:{line}: ")
    assert words in problem


def test_a_key_that_is_given_twice_names_both_lines(tmp_path):
    problem = only_problem_of(tmp_path, SMALLEST + "repeats: 2\nrepeats: 3\n")

    assert problem == "space.yaml:5: repeats: is given twice (first on line 4)"


def test_anchors_and_merge_keys_work_and_own_keys_win(tmp_path):
    text = """\
    model: m
    knobs: {max_num_seqs: {choices: [1, 2]}}
    workloads:
      a: &short {input_tokens: 100, output_tokens: 10, concurrency: [1, 2]}
      b: {<<: *short, output_tokens: 20}
      c:
        <<: [{seed: 5}, *short]
    """

    a, b, c = space_of(tmp_path, text).workloads

    assert (a.output_tokens, b.output_tokens, b.input_tokens) == (10, 20, 100)
    assert (c.seed, c.concurrency) == (5, (1, 2))


def test_a_mistake_under_an_anchor_is_told_once(tmp_path):
    text = """\
    model: m
    knobs:
      max_num_seqs: {choices: [1, 2]}
    server:
      env: &shared {A: {}}
      hardware: *shared
    """

    assert (
        only_problem_of(tmp_path, text) == "space.yaml:5: server.env.A: must be text, not a mapping"
    )


@pytest.mark.usefixtures("either_parser")
@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: &a [*a]\n", "an alias that holds itself?"),
        ("a: &a {b: *a}\n", "an alias that holds itself?"),
        ("a: &a {<<: *a}\n", "an alias that holds itself?"),
        ("[" * 500 + "]" * 500, "nest"),
        ("[" * 20_000, "nest"),
        ("{a: " * 20_000, "nest"),
        ("- " * 20_000, "nest"),
    ],
)
def test_endless_nesting_is_refused(tmp_path, text, words):
    assert words in only_problem_of(tmp_path, text)


def test_a_few_aliases_cannot_grow_without_bound(tmp_path):
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 12)]

    assert "expands to more than 20000 values" in only_problem_of(tmp_path, "\n".join(lines))


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("name: !!python/object:os.system x", "the tag !!python/object:os.system is not supported"),
        ('repeats: !!int "3"', "the tag !!int is not supported"),
        ("limits: !set {trials: 1}", "the tag !set is not supported"),
        ("<<: 3", "<< merges mappings only"),
        ("? [a]\n: b", "a key must be a word"),
        ('name: "a\\0b"', "holds a character that no command line can carry"),
    ],
)
def test_what_has_no_meaning_here_is_refused(tmp_path, line, words):
    assert any(words in problem for problem in problems_of(tmp_path, SMALLEST + line + "\n"))


def test_an_explicit_text_tag_is_as_good_as_quotes(tmp_path):
    assert space_of(tmp_path, SMALLEST + "name: !!str 2024\n").name == "2024"
