import pytest

from autotune.diagnosis.log_text import LogText, read_line


@pytest.mark.parametrize(
    ("raw", "level", "message"),
    [
        ("(EngineCore pid=3) ERROR 11-21 09:29:40 [core.py:1330] ValueError: x", "ERROR", "ValueError: x"),
        ("ERROR 11-21 09:29:40 engine.py:366] ValueError: x", "ERROR", "ValueError: x"),
        ("(Worker_TP0 pid=3) WARNING 11-21 09:29:40.123 [v1/worker/gpu.py:13] x", "WARNING", "x"),
        ("2026-11-21 09:29:40,345 - __main__ - INFO - WARNING 11-21 09:29:40 [u.py:2] x", "WARNING", "x"),
        ("(VllmWorker rank=1 pid=24) KeyError: 'a'", None, "KeyError: 'a'"),
        ("(EngineCore_0 pid=1) (RayWorkerWrapper pid=13, ip=192.0.2.1) ValueError: x", None, "ValueError: x"),
        ("Nov 21 09:29:40 host vllm[7]: (APIServer pid=7) INFO:     Shutting down", "INFO", "Shutting down"),
        ("[sidecar]: 2026-11-21T09:29:40.672Z 1 stdout: ERROR:    [Errno 98] x", "ERROR", "[Errno 98] x"),
        ("vllm-1  | RuntimeError: x", None, "RuntimeError: x"),
        ("[rank0]: RuntimeError: x", None, "RuntimeError: x"),
        ("[rank0]:[W808 22:14:39.889261872 ProcessGroupNCCL.cpp:1575] Warning: x", "WARNING", "Warning: x"),
        ("[rank1]:[E808 22:14:39.889 ProcessGroupNCCL.cpp:632] x", "ERROR", "x"),
        ("/opt/lib/a.py:63: FutureWarning: x", "WARNING", "/opt/lib/a.py:63: FutureWarning: x"),
        ("[module.py:492] ValueError: x", None, "ValueError: x"),
        ('{"log": "RuntimeError: x\\n", "stream": "stderr"}', None, "RuntimeError: x"),
        ('{"broken": ', None, '{"broken":'),
    ],
)  # fmt: skip
def test_a_message_is_freed_from_what_stands_before_it(raw, level, message):
    line = read_line(raw.rstrip())

    assert (line.level, line.message) == (level, message)


def test_lines_are_counted_as_an_editor_does():
    log = LogText("one\r\nbar 1%\rbar 2%\nthree\n")

    starts = [next(log.offsets((phrase,))) for phrase in ("one", "bar 1%", "bar 2%", "three")]

    assert [log.line_number(start) for start in starts] == [1, 2, 2, 3]
    assert [log.line(start).raw for start in starts] == ["one", "bar 1%", "bar 2%", "three"]


def test_several_phrases_are_found_in_order_and_a_line_once():
    log = LogText("b\nab\na\nc\n")

    assert list(log.offsets(("a", "b"))) == [0, 2, 5]


def test_offsets_are_right_behind_characters_of_any_width():
    log = LogText("▄▄ \U0001f600 █\nneedle\n")

    assert log.line(next(log.offsets(("needle",)))).raw == "needle"
