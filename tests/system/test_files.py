import json

import pytest

from autotune.errors import HostError, StudyError
from autotune.system.files import held, make_folder, read_json, read_tail, write_json, write_whole


def test_a_file_is_replaced_whole_and_nothing_is_left_beside_it(tmp_path):
    path = tmp_path / "deep" / "file.txt"
    write_whole(path, "old")

    write_whole(path, "new")

    assert path.read_text() == "new"
    assert list(path.parent.iterdir()) == [path]
    assert path.stat().st_mode & 0o044


def test_a_file_that_cannot_be_written_is_named_with_what_to_do(tmp_path):
    (tmp_path / "in the way").write_text("")

    with pytest.raises(HostError, match="in the way/file") as error:
        write_whole(tmp_path / "in the way" / "file", "text")

    assert "--studies" in str(error.value.hint)
    with pytest.raises(HostError):
        make_folder(tmp_path / "in the way" / "folder")


def test_numbers_that_json_does_not_have_are_never_written(tmp_path):
    with pytest.raises(ValueError, match="JSON"):
        write_json(tmp_path / "file.json", {"value": float("nan")})

    assert not (tmp_path / "file.json").exists()


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b'{"a": 1} {"b": 2}'])
def test_json_that_is_torn_reads_as_nothing(tmp_path, content):
    path = tmp_path / "file.json"
    path.write_bytes(content)

    assert read_json(path) is None
    assert read_json(tmp_path / "missing.json") is None


def test_json_reads_back_as_it_was_written(tmp_path):
    content = {"text": "Größe ☕", "list": [1, None, True]}
    write_json(tmp_path / "file.json", content)

    assert read_json(tmp_path / "file.json") == json.loads(json.dumps(content))


def test_of_a_long_log_beginning_and_end_are_read(tmp_path):
    path = tmp_path / "log"
    path.write_bytes(b"first" + b"." * 1000 + b"last")

    assert len(read_tail(path)) == 1009
    short = read_tail(path, size=20)
    assert short.startswith(b"first")
    assert short.endswith(b"last")
    assert len(short) < 60
    assert read_tail(tmp_path / "missing") == b""


def test_a_lock_is_held_once_at_a_time_and_let_go_afterwards(tmp_path):
    path = tmp_path / "lock"

    with held(path), pytest.raises(StudyError), held(path):
        pass
    with held(path):
        pass
