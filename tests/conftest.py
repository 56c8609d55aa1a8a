"""What needs more than Python and pip is left out by name, unless its tool is given."""

import os

import pytest

NEEDS = {
    "vllm": ("AUTOTUNE_TEST_VLLM", "a real vLLM on a CPU (.ci/run builds one)"),
    "browser": ("AUTOTUNE_TEST_BROWSER", "a headless Chromium (.ci/run installs one)"),
    "postgresql": ("AUTOTUNE_TEST_POSTGRESQL", "a PostgreSQL server (.ci/run starts one)"),
}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, (variable, need) in NEEDS.items():
            if item.get_closest_marker(mark) and not os.environ.get(variable):
                item.add_marker(pytest.mark.skip(reason=f"left out: needs {need}"))
