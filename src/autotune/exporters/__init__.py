"""Files of results: pure text from `Results`, one file and one table entry for each."""

from collections.abc import Mapping

from autotune.exporters.command import Command
from autotune.exporters.front_json import FrontJson
from autotune.exporters.recipe import Recipe
from autotune.exporters.report import Report
from autotune.exporters.trials_csv import TrialsCsv
from autotune.protocols import Exporter

STUDY_FILES: tuple[Exporter, ...] = (FrontJson(), TrialsCsv(), Report(), Recipe())
"""What is rewritten after every trial."""

FORMATS: Mapping[str, type[Recipe] | type[Command]] = {"recipe": Recipe, "command": Command}
"""What `autotune export --format` offers."""

__all__ = ["FORMATS", "STUDY_FILES", "Command", "FrontJson", "Recipe", "Report", "TrialsCsv"]
