"""The section `server`: the launcher with its options, and what every configuration shares."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from autotune.model.search_space import Part, ServerSettings
from autotune.model.serving_config import ENVIRONMENT_PREFIX, SECRET, Setting
from autotune.space_file import argv
from autotune.space_file.names import VARIABLE, Taken, corrected, leaves, name_problem, parents
from autotune.space_file.parts import read_part
from autotune.space_file.paths import as_existing, as_path
from autotune.space_file.place import UNREAD, Place
from autotune.space_file.problems import shortened
from autotune.space_file.vocabulary import Vocabulary
from autotune.space_file.yaml_lines import Items, Scalar

DEFAULT_LAUNCHER = "local"
DEFAULT_TIMEOUT_SECONDS = 1800.0
OWN_KEYS = ("launcher", "args", "env", "startup_timeout_s")
FILE_ARGUMENTS = ("chat_template", "tool_parser_plugin", "reasoning_parser_plugin")
_JSON_FLAGS = ("_config", "_overrides", "_kwargs")


@dataclass(frozen=True, slots=True, kw_only=True)
class Fixed:
    """Settings held fixed: what knobs, rules and loads are held against.

    known: every fixed argument by name, the keys of JSON flags as well
    taken: what no knob may set; places: where each argument stands
    unread: arguments that stand in the file but are wrong; they are not missed a second time
    """

    args: Mapping[str, Setting] = field(default_factory=dict)
    known: Mapping[str, Setting] = field(default_factory=dict)
    taken: Taken = field(default_factory=Taken)
    places: Mapping[str, Place] = field(default_factory=dict)
    unread: frozenset[str] = frozenset()

    def is_unread(self, name: str) -> bool:
        return any(part in self.unread for part in (name, *parents(name)))


def read_server(
    place: Place | None, *, folder: Path, vocabulary: Vocabulary
) -> tuple[ServerSettings, Fixed]:
    entries = place.table("the launcher and what it starts") if place else {}
    launcher = _read_launcher(place, entries, folder=folder, vocabulary=vocabulary)
    fixed = _read_args(entries.get("args"), folder)
    env = _read_env(entries.get("env"))
    for variable in env:
        fixed.taken.add(ENVIRONMENT_PREFIX + variable)
    timeout = entries.get("startup_timeout_s")
    settings = ServerSettings(
        launcher=launcher,
        args=fixed.args,
        env=env,
        startup_timeout_s=(timeout and timeout.positive("seconds")) or DEFAULT_TIMEOUT_SECONDS,
    )
    return settings, fixed


def _read_launcher(
    place: Place | None, entries: dict[str, Place], *, folder: Path, vocabulary: Vocabulary
) -> Part:
    options = {key: option for key, option in entries.items() if key not in OWN_KEYS}
    part = read_part(
        "launcher",
        entries.get("launcher"),
        options=options,
        known=vocabulary.launchers,
        default=DEFAULT_LAUNCHER,
        own_keys=OWN_KEYS,
    )
    executable = part.options.get("executable")
    where = part.where or (place.where if place else "")
    if isinstance(executable, str) and "/" in executable:
        resolved = {**part.options, "executable": as_path(executable, folder)}
        return Part(kind=part.kind, options=resolved, where=where)
    return Part(kind=part.kind, options=part.options, where=where)


# --- args


def _read_args(place: Place | None, folder: Path) -> Fixed:
    if place is None or place.blank:
        return Fixed()
    args: dict[str, Setting] = {}
    places: dict[str, Place] = {}
    taken = Taken()
    for name, value, spot in _named_args(place) if place.is_table else _pasted_args(place):
        own = leaves(name, value)
        problem = _value_problem(name, value) or _twice(own, taken)
        if problem is not None:
            spot.fail(problem)
            continue
        for leaf in own:
            taken.add(leaf)
        args[name] = _located(name, value, folder)
        places[name] = spot
    known = {
        leaf: item for name, value in args.items() for leaf, item in leaves(name, value).items()
    }
    return Fixed(
        args=args,
        known={**known, **args},
        taken=taken,
        places=places,
        unread=_unread(place, args),
    )


def _unread(place: Place, args: Mapping[str, Setting]) -> frozenset[str]:
    named = place.table("") if place.is_table else {}
    wrong = {name for name in named if name not in args}
    return frozenset(wrong | {corrected(name) for name in wrong})


def _twice(own: Mapping[str, Setting], taken: Taken) -> str | None:
    other = next((clash for leaf in own if (clash := taken.clash(leaf))), None)
    return None if other is None else f"is given twice (also as {other})"


def _named_args(place: Place) -> Iterator[tuple[str, Setting, Place]]:
    for name, spot in place.table("flags and their values").items():
        if isinstance(spot.node, Scalar) and spot.node.empty:
            spot.fail("has no value; write true to switch it on, null to leave it to vLLM")
            continue
        value = spot.setting()
        if _is_name(name, spot) and value is not UNREAD:
            yield name, _unpacked(value), spot


def _is_name(name: str, spot: Place) -> bool:
    variable = name.startswith(ENVIRONMENT_PREFIX)
    problem = "environment variables stand under server.env" if variable else name_problem(name)
    if problem is not None:
        spot.fail(problem)
    return problem is None


def _unpacked(value: Any) -> Setting:
    if isinstance(value, str):
        mapping = argv.json_mapping(value)
        return value if mapping is None else mapping
    if isinstance(value, list):
        # Words of one flag: a mapping among them is one word of JSON (--lora-modules takes such).
        return [
            json.dumps(item, separators=(",", ":")) if isinstance(item, dict | list) else item
            for item in value
        ]
    return value


def _pasted_args(place: Place) -> Iterator[tuple[str, Setting, Place]]:
    """Read a list of words or one line of them; each flag stands where its own word does."""
    words = _words(place)
    for start, group in argv.grouped([word for word, _ in words]):
        spot = words[start][1]
        try:
            name, value = argv.setting_of(group)
        except argv.ArgvError as error:
            spot.fail(str(error))
        else:
            named = _named(spot, place, name)
            if _is_name(name, named):
                yield name, value, named


def _named(spot: Place, place: Place, name: str) -> Place:
    return Place(
        node=spot.node, path=f"{place.path}.{name}", line=spot.line, problems=spot.problems
    )


def _words(place: Place) -> list[tuple[str, Place]]:
    if isinstance(place.node, Items):
        return [
            (word, item)
            for item in place.items("words")
            if (text := item.raw()) is not None
            for word in _split(item, text, argv.split_item)
        ]
    text = place.text("a mapping, a list of words or one line of them")
    return [(word, place) for word in _split(place, text or "", argv.split_line)]


def _split(place: Place, text: str, split: Any) -> list[str]:
    try:
        return list(split(text))
    except argv.ArgvError as error:
        place.fail(str(error))
        return []


def _value_problem(name: str, value: Setting) -> str | None:
    if value == []:
        return "is an empty list"
    if isinstance(value, str) and value.lstrip().startswith("{") and name.endswith(_JSON_FLAGS):
        return f"is not a JSON object, or gives a key twice: {shortened(value)}"
    return None


def _located(name: str, value: Setting, folder: Path) -> Setting:
    if isinstance(value, str) and (name in FILE_ARGUMENTS or value.startswith(("./", "../", "~/"))):
        return as_existing(value, folder)
    return value


# --- env


def _read_env(place: Place | None) -> dict[str, str]:
    env: dict[str, str] = {}
    for name, spot in (place.table("variables and their texts") if place else {}).items():
        value = _variable(name, spot)
        if value is not None:
            env[name] = value
    return env


def _variable(name: str, spot: Place) -> str | None:
    if not VARIABLE.fullmatch(name):
        bare = name.removeprefix(ENVIRONMENT_PREFIX)
        hint = f"; write {bare}" if VARIABLE.fullmatch(bare) else ""
        spot.fail(f"is not the name of an environment variable{hint}")
        return None
    if SECRET.search(name):
        spot.fail(
            f"a secret does not belong into a file that is copied into the study: export {name} in"
            " the shell that runs autotune, the server inherits it"
        )
        return None
    text = spot.raw()
    if text is None or not isinstance(spot.node, Scalar):
        return None
    if spot.node.plain and (text.lower() in ("true", "false") or spot.blank):
        shown = text or "an empty value"
        spot.fail(
            f'{shown} is not text: write "1", "0" or "{text}" in quotes, as the program wants it'
        )
        return None
    return text
