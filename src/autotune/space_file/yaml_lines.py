"""YAML with line numbers: a file becomes nodes that know where they stand.

Only PyYAML's parser is used. What a word means is decided where it is read, because YAML 1.1's own
meanings are traps (see `scalars`).
"""

import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import yaml
from yaml.resolver import Resolver

from autotune.errors import SearchSpaceError
from autotune.space_file.problems import Problems, closest, shortened

MAX_BYTES = 256 * 1024
MAX_DEPTH = 40
MAX_NODES = 20_000

# libyaml's parser is some ten times faster; PyYAML installs without it where it cannot be built.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RESOLVER: Any = Resolver()  # its stubs leave resolve() untyped
_TAG = "tag:yaml.org,2002:"
_QUOTES = ("'", '"', "|", ">")


@dataclass(frozen=True, slots=True, kw_only=True)
class Scalar:
    """One word. `plain` tells an unquoted one, whose meaning is still open."""

    text: str
    plain: bool
    line: int

    @property
    def empty(self) -> bool:
        return self.plain and not self.text


@dataclass(frozen=True, slots=True, kw_only=True)
class Items:
    """A list."""

    items: tuple["Node", ...]
    line: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A key's line and its value."""

    line: int
    node: "Node"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A mapping, merge keys resolved."""

    entries: Mapping[str, Entry]
    line: int


Node: TypeAlias = Scalar | Items | Table


def read_yaml(path: Path, problems: Problems) -> Node:
    """Parse a file into nodes; duplicate keys and foreign tags are noted as problems.

    Raises:
        SearchSpaceError: There is nothing that could be read.
    """
    text = _decoded(_bytes(path), path)
    root = _composed(text, problems)
    if root is None:
        problems.add(1, "", "the file is empty; a search space has at least model and knobs")
        raise problems.error()
    try:
        return _Conversion(problems=problems).node(root, "", 0)
    except _RefusedError as refused:
        problems.add(refused.line, "", str(refused))
        raise problems.error() from refused


def _bytes(path: Path) -> bytes:
    try:
        mode = path.stat().st_mode
        if stat.S_ISDIR(mode):
            raise SearchSpaceError([f"{path}: is a folder, not a search-space file"])
        if not stat.S_ISREG(mode):
            raise SearchSpaceError([f"{path}: is not a regular file"])
        with path.open("rb") as stream:
            data = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise SearchSpaceError([f"{path}: there is no such file"], hint=_similar(path)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise SearchSpaceError([f"{path}: cannot be read: {reason}"]) from error
    if len(data) > MAX_BYTES:
        size = f"{MAX_BYTES // 1024} KiB"
        raise SearchSpaceError([f"{path}: is larger than {size}; that is no search-space file"])
    return data


def _similar(path: Path) -> str | None:
    try:
        names = [file.name for file in path.parent.iterdir() if file.suffix in {".yaml", ".yml"}]
    except OSError:
        return f"There is no folder {path.parent} either."
    meant = closest(path.name, names)
    return f"Did you mean {path.parent / meant}?" if meant else None


def _decoded(data: bytes, path: Path) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = data[: error.start].count(b"\n") + 1
        problem = f"{path}:{line}: is not UTF-8 text (byte 0x{data[error.start]:02x})"
        raise SearchSpaceError([problem], hint="Save the file as UTF-8.") from error


def _composed(text: str, problems: Problems) -> yaml.Node | None:
    try:
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        _note_syntax(error, text, problems)
        raise problems.error() from error
    except yaml.reader.ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        problems.add(line, "", f"the character {error.character:#06x} is not allowed in YAML")
        raise problems.error() from error
    except RecursionError as error:
        # Only PyYAML's own parser; libyaml refuses beyond its nesting limit.
        problems.add(1, "", f"nested deeper than {MAX_DEPTH} levels")
        raise problems.error() from error
    return node


def _note_syntax(error: yaml.MarkedYAMLError, text: str, problems: Problems) -> None:
    lines = text.splitlines() or [""]
    mark = error.problem_mark or error.context_mark
    number = min(mark.line + 1 if mark else 1, len(lines))
    if "single document" in str(error.context):
        problems.add(number, "", "a second document starts here (---); a file is one search space")
        return
    told = ", ".join(part for part in (error.context, error.problem) if part)
    hint = _syntax_hint(lines[number - 1], told)
    problems.add(number, "", f"not YAML: {told}; the line is: {shortened(lines[number - 1])}{hint}")


def _syntax_hint(line: str, told: str) -> str:
    if "\t" in line and "cannot start any token" in told:
        return " (it holds a tab: indent with spaces)"
    if "block scalar" in told or ("cannot start any token" in told and ">" in line):
        return ' (put comparisons in quotes: ">= 1")'
    if "mapping values" in told:
        return " (quote text that holds a colon and a space)"
    return ""


class _RefusedError(Exception):
    def __init__(self, line: int, message: str) -> None:
        super().__init__(message)
        self.line = line


@dataclass(slots=True, kw_only=True)
class _Conversion:
    """Counts what is made, so that a few lines of aliases cannot grow without bound."""

    problems: Problems
    made: int = 0

    def node(self, source: yaml.Node, where: str, depth: int) -> Node:
        line = source.start_mark.line + 1
        self.made += 1
        if self.made > MAX_NODES:
            raise _RefusedError(line, f"expands to more than {MAX_NODES} values (nested aliases?)")
        if depth > MAX_DEPTH:
            raise _RefusedError(
                line, f"nested deeper than {MAX_DEPTH} levels (an alias that holds itself?)"
            )
        if isinstance(source, yaml.ScalarNode):
            return self._scalar(source, where, line)
        if isinstance(source, yaml.SequenceNode):
            self._refuse_tag(source, "seq", where, line)
            items = enumerate(source.value)
            nodes = (self.node(item, f"{where}[{index}]", depth + 1) for index, item in items)
            return Items(items=tuple(nodes), line=line)
        if isinstance(source, yaml.MappingNode):
            self._refuse_tag(source, "map", where, line)
            return Table(entries=self._entries(source, where, depth), line=line)
        raise TypeError(source)  # YAML has no fourth kind of node

    def _scalar(self, source: yaml.ScalarNode, where: str, line: int) -> Scalar:
        plain = source.style not in _QUOTES
        expected = str(_RESOLVER.resolve(yaml.ScalarNode, source.value, (plain, not plain)))
        if plain and source.tag == _TAG + "str" != expected:
            return Scalar(text=source.value, plain=False, line=line)
        self._refuse_tag(source, expected.removeprefix(_TAG), where, line)
        if "\0" in source.value or not _encodable(source.value):
            self.problems.add(line, where, "holds a character that no command line can carry")
            return Scalar(text="?", plain=False, line=line)
        return Scalar(text=source.value, plain=plain, line=line)

    def _refuse_tag(self, source: yaml.Node, expected: str, where: str, line: int) -> None:
        if source.tag != _TAG + expected:
            tag = source.tag.replace(_TAG, "!!")
            self.problems.add(
                line, where, f"the tag {shortened(tag)} is not supported; leave it out"
            )

    def _entries(self, source: yaml.MappingNode, where: str, depth: int) -> dict[str, Entry]:
        merged: dict[str, Entry] = {}
        own: dict[str, Entry] = {}
        for key, value in source.value:
            line = key.start_mark.line + 1
            if key.tag == _TAG + "merge":
                for name, entry in self._merged(value, where, depth + 1):
                    merged.setdefault(name, entry)
            elif not isinstance(key, yaml.ScalarNode) or not key.value:
                self.problems.add(line, where, "a key must be a word")
            elif key.value in own:
                text = f"is given twice (first on line {own[key.value].line})"
                self.problems.add(line, dotted(where, key.value), text)
            else:
                node = self.node(value, dotted(where, key.value), depth + 1)
                own[key.value] = Entry(line=line, node=node)
        return {**merged, **own}

    def _merged(self, source: yaml.Node, where: str, depth: int) -> Iterator[tuple[str, Entry]]:
        line = source.start_mark.line + 1
        sources = source.value if isinstance(source, yaml.SequenceNode) else [source]
        for part in sources:
            node = self.node(part, where, depth)
            if isinstance(node, Table):
                yield from node.entries.items()
            else:
                self.problems.add(line, where, "<< merges mappings only")


def dotted(where: str, key: str) -> str:
    return f"{where}.{shortened(key)}" if where else shortened(key)


def _encodable(text: str) -> bool:
    # A lone surrogate ("\ud800") passes through YAML but not through argv.
    return not any("\ud800" <= character <= "\udfff" for character in text)
