"""A search-space file, whole: the sections in the order in which they need each other."""

import re
from dataclasses import dataclass
from pathlib import Path

from autotune.model.knob import Knob, Value
from autotune.model.search_space import SearchSpace, WorkloadSpec
from autotune.space_file.aims import Loads, read_constraints, read_objectives
from autotune.space_file.baseline import read_baseline, read_rules, refuse_broken_baseline
from autotune.space_file.knobs import read_knobs
from autotune.space_file.loads import read_workloads, refuse_overlong
from autotune.space_file.parts import read_gates, read_limits, read_sampler
from autotune.space_file.paths import as_model
from autotune.space_file.place import Place
from autotune.space_file.problems import Problems, shortened
from autotune.space_file.server import Fixed, read_server
from autotune.space_file.vocabulary import ANYTHING, Vocabulary
from autotune.space_file.yaml_lines import Table, read_yaml

KEYS = (
    "name",
    "model",
    "server",
    "baseline",
    "knobs",
    "rules",
    "workloads",
    "objectives",
    "constraints",
    "gates",
    "repeats",
    "limits",
    "search",
)
DEFAULT_REPEATS = 3
MOST_REPEATS = 20
CONTEXT_LENGTH = "max_model_len"

# The name becomes a folder under studies/ and the study's name in its storage.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}")


def read_search_space(
    path: Path, *, vocabulary: Vocabulary = ANYTHING, relative_to: Path | None = None
) -> SearchSpace:
    """Read a search-space file strictly: nothing is ignored, guessed or coerced.

    relative_to: the folder in which a copy's original stood; what it points at may be gone by now

    Raises:
        SearchSpaceError: Every mistake in the file, each as `file:line: path: what is wrong`.
    """
    problems = Problems(file=path)
    root = Place(node=read_yaml(path, problems), path="", line=1, problems=problems)
    if not root.is_table:
        root.fail("must be a mapping with the keys model, knobs, ...")
        problems.raise_if_any()
    space = _Reading(
        sections=root.fields(KEYS),
        root=root,
        path=path,
        vocabulary=vocabulary,
        relative_to=relative_to,
    ).space()
    problems.raise_if_any()
    return space


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
    sections: dict[str, Place]
    root: Place
    path: Path
    vocabulary: Vocabulary
    relative_to: Path | None

    def space(self) -> SearchSpace:
        """Build the space out of all that could be read."""
        folder = self.relative_to or self.path.parent
        server, fixed = read_server(
            self.sections.get("server"), folder=folder, vocabulary=self.vocabulary
        )
        knobs, meant = self._knobs(fixed)
        rules = read_rules(self.sections.get("rules"), knobs=knobs, meant=meant, fixed=fixed)
        baseline = read_baseline(
            self.sections.get("baseline"), knobs=knobs, meant=meant, fixed=fixed
        )
        specs, places = read_workloads(self.sections.get("workloads"))
        self._refuse_overlong(specs, places, fixed=fixed, baseline=baseline, knobs=meant)
        repeats = self._repeats()
        loads = Loads(specs=specs, meant=places, repeats=repeats)
        space = SearchSpace(
            name=self._name(),
            model=self._model(folder),
            server=server,
            knobs=tuple(knob for name, knob in knobs.items() if name in baseline),
            baseline={name: baseline[name] for name in knobs if name in baseline},
            assumed=tuple(name for name in knobs if name not in self._given("baseline")),
            workloads=tuple(specs.values()),
            objectives=read_objectives(self.sections.get("objectives"), loads),
            rules=tuple(rule for rule, _ in rules),
            constraints=read_constraints(self.sections.get("constraints"), loads),
            gates=read_gates(
                self.sections.get("gates"),
                folder=folder,
                known=self.vocabulary.gates,
                must_exist=self.relative_to is None,
            ),
            repeats=repeats,
            limits=read_limits(self.sections.get("limits")),
            sampler=read_sampler(self.sections.get("search"), known=self.vocabulary.samplers),
            source=self.path,
        )
        refuse_broken_baseline(space, rules)
        return space

    def _knobs(self, fixed: Fixed) -> tuple[dict[str, Knob], dict[str, Place]]:
        place = self.sections.get("knobs")
        if place is None:
            self.root.missing("knobs", "is missing: which settings may turn?")
        knobs, meant = read_knobs(place, fixed=fixed)
        if place is not None and not meant and (place.is_table or place.blank):
            place.fail("needs at least one knob")
        return knobs, meant

    def _given(self, section: str) -> frozenset[str]:
        place = self.sections.get(section)
        node = None if place is None else place.node
        return frozenset(node.entries) if isinstance(node, Table) else frozenset()

    def _name(self) -> str:
        place = self.sections.get("name")
        if place is None:
            stem = re.sub(r"[^A-Za-z0-9_.-]+", "-", self.path.stem).lstrip("_.-")
            return stem[:100] or "study"
        text = place.text("a name")
        if text is not None and not _NAME.fullmatch(text):
            place.fail("must be made of letters, digits, - _ and ., as it names the study's folder")
        return text or ""

    def _model(self, folder: Path) -> str:
        place = self.sections.get("model")
        if place is None:
            self.root.missing(
                "model", "is missing: a folder, or a name such as Qwen/Qwen3.6-35B-A3B-FP8"
            )
            return ""
        text = place.text("a folder or a name")
        if text is not None and text.startswith("-"):
            # It stands first on the command line of the server, where it would be read as a flag.
            place.fail(f"{shortened(text)} looks like a flag")
        return as_model(text, folder) if text else ""

    def _repeats(self) -> int:
        place = self.sections.get("repeats")
        if place is None:
            return DEFAULT_REPEATS
        # Where the number is wrong, no percentile is blamed for it as well.
        return place.integer(low=1, high=MOST_REPEATS) or MOST_REPEATS

    def _refuse_overlong(
        self,
        specs: dict[str, WorkloadSpec],
        places: dict[str, Place],
        *,
        fixed: Fixed,
        baseline: dict[str, Value],
        knobs: dict[str, Place],
    ) -> None:
        """Hold the loads against the context length that the baseline is served with."""
        length = fixed.args.get(CONTEXT_LENGTH, baseline.get(CONTEXT_LENGTH))
        held = fixed.places.get(CONTEXT_LENGTH) or knobs.get(CONTEXT_LENGTH)
        if isinstance(length, int) and not isinstance(length, bool) and held is not None:
            refuse_overlong(specs, places, limit=length, held=held)
