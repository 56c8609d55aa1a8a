"""Finds the line on which a setting, or one of its values, stands in a search-space file."""

from collections.abc import Iterator
from pathlib import Path

import yaml

SECTIONS = (("knobs",), ("server", "args"), ("server", "env"), ("baseline",))


def line_of(path: Path, name: str, value: object = None) -> int:
    """Return a line from 1: the value's where it can be told, else the setting's, else the first."""
    root = yaml.compose(path.read_text(encoding="utf-8"))
    places = [place for section in SECTIONS for place in _entries(_descend(root, section), name)]
    for node in places if value is not None else ():
        for scalar in _scalars(node):
            if scalar.value == str(value):
                return _line(scalar)
    for section in SECTIONS:
        key = _key(_descend(root, section), name)
        if key is not None:
            return _line(key)
    return _line(_descend(root, ("server",)) or root) if root is not None else 1


def _descend(node: yaml.Node | None, keys: tuple[str, ...]) -> yaml.Node | None:
    for key in keys:
        node = next(iter(_entries(node, key)), None)
    return node


def _entries(node: yaml.Node | None, name: str) -> Iterator[yaml.Node]:
    """Yield what stands under a key; an environment variable is written without its prefix."""
    if not isinstance(node, yaml.MappingNode):
        return
    for key, value in node.value:
        if key.value in (name, name.removeprefix("env."), name.partition(".")[0]):
            yield value


def _key(node: yaml.Node | None, name: str) -> yaml.Node | None:
    if not isinstance(node, yaml.MappingNode):
        return None
    exact = [key for key, _ in node.value if key.value == name]
    near = [
        key
        for key, _ in node.value
        if key.value in (name.removeprefix("env."), name.partition(".")[0])
    ]
    return next(iter((*exact, *near)), None)


def _scalars(node: yaml.Node) -> Iterator[yaml.ScalarNode]:
    if isinstance(node, yaml.ScalarNode):
        yield node
    elif isinstance(node, yaml.SequenceNode):
        for item in node.value:
            yield from _scalars(item)
    elif isinstance(node, yaml.MappingNode):
        for _, item in node.value:
            yield from _scalars(item)


def _line(node: yaml.Node) -> int:
    return int(node.start_mark.line) + 1
