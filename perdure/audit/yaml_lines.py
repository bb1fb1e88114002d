"""YAML (and so JSON) with the line on which each value stands. Loaded only where it is needed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import yaml

Path = tuple[str | int, ...]

DEPTH_MAX = 100

_MERGE = "tag:yaml.org,2002:merge"


class DuplicateKeyError(ValueError):
    """A map gives the same key twice; the text is the key and its line."""


def plain(text: str) -> Any:
    """The single document in `text` as maps, lists and scalars. ValueError, on one line, if it is
    none.
    """
    return documents(text, count_max=1)[0][0]


def documents(text: str, count_max: int = 1_000) -> list[tuple[Any, dict[Path, int]]]:
    """Every document in `text`, each with the lines (from 1) of its values, by path."""
    loader = yaml.SafeLoader(text)
    found: list[tuple[Any, dict[Path, int]]] = []
    try:
        while loader.check_node():
            node = loader.get_node()
            assert node is not None
            if len(found) == count_max:
                raise ValueError("more than one document")
            lines = dict(_lines(node, (), set()))
            found.append((loader.construct_document(node), lines))
    except yaml.YAMLError as problem:
        raise ValueError(_one_line(problem)) from None
    except TypeError as problem:  # A list or map as a key.
        raise ValueError(str(problem)) from None
    finally:
        loader.dispose()
    return found or [(None, {})]


def _lines(
    node: yaml.Node, path: Path, known: set[int], depth: int = 0
) -> Iterator[tuple[Path, int]]:
    """Paths with lines. A node that aliases repeat is gone into once: a few of them, nested, would
    stand for more paths than there is memory.
    """
    if depth > DEPTH_MAX:
        raise ValueError("nested too deeply")
    yield path, node.start_mark.line + 1
    if id(node) in known:
        return
    known.add(id(node))
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield from _lines(item, (*path, index), known, depth + 1)
    elif isinstance(node, yaml.MappingNode):
        seen: set[tuple[str, str]] = set()
        for key, value in node.value:
            name = str(key.value)
            if (key.tag, name) in seen and key.tag != _MERGE:
                place = f"line {key.start_mark.line + 1}"
                if path[:1] == ("layers",) and len(path) > 1 and isinstance(path[1], int):
                    place += f", layer {path[1] + 1}"
                raise DuplicateKeyError(f"{json.dumps(name)} ({place})")
            seen.add((key.tag, name))
            yield from _lines(value, (*path, name), known, depth + 1)


def _one_line(problem: yaml.YAMLError) -> str:
    mark = getattr(problem, "problem_mark", None)
    what = getattr(problem, "problem", None) or str(problem).splitlines()[0]
    return f"{what} (line {mark.line + 1})" if mark is not None else str(what)
