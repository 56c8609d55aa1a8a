"""What every exporter of the tables promises."""

import pytest

from autotune.exporters import FORMATS, STUDY_FILES
from autotune.tuning.study import results_of
from tests.exporters.test_exporters import results
from tests.fakes.bench import make_space

EXPORTERS = list(
    {type(e): e for e in [*STUDY_FILES, *(kind() for kind in FORMATS.values())]}.values()
)


@pytest.mark.parametrize("exporter", EXPORTERS, ids=lambda e: type(e).__name__ + e.filename)
def test_it_renders_text_that_depends_on_the_results_alone(exporter):
    found = results()

    text = exporter.render(found)

    assert text == exporter.render(found)
    assert text.endswith("\n")
    assert "/" not in exporter.filename


@pytest.mark.parametrize("exporter", EXPORTERS, ids=lambda e: type(e).__name__ + e.filename)
def test_it_survives_a_study_in_which_nothing_was_usable(exporter):
    assert isinstance(exporter.render(results_of("none", make_space(), {}, None)), str)


def test_no_two_files_of_a_study_share_a_name():
    names = [exporter.filename for exporter in STUDY_FILES]

    assert len(set(names)) == len(names)
