"""What Client and LocalEngine return: the JSON objects of the protocol with attributes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

# Fields that hold a user's own value: given out as it is, however much it looks like one of ours.
_VALUES = frozenset({"input", "result", "heartbeat_details", "details"})


class Answer(Mapping[str, Any]):
    """A read-only object: `answer.status` and `answer["status"]` are the same.

    Attributes are named as in the JSON; objects inside it are Answers, lists are Python lists. It
    equals the dict of the same content. A name that is not there raises AttributeError, KeyError.
    """

    __slots__ = ("_fields",)
    _fields: dict[str, Any]

    def __init__(self, fields: Mapping[str, Any]) -> None:
        object.__setattr__(
            self,
            "_fields",
            {name: v if name in _VALUES else to_answer(v) for name, v in fields.items()},
        )

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or name == "_fields":  # copy and pickle look before they restore.
            raise AttributeError(name)
        try:
            return self._fields[name]
        except KeyError:
            known = ", ".join(self._fields)
            raise AttributeError(f"there is no {name!r}; there are: {known}") from None

    def __setattr__(self, name: str, value: Any) -> None:
        raise AttributeError("an answer is read-only")

    def __getitem__(self, name: str) -> Any:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __reduce__(self) -> tuple[type[Answer], tuple[dict[str, Any]]]:
        return (Answer, (self._fields,))

    def __repr__(self) -> str:
        return f"Answer({self._fields!r})"

    def to_dict(self) -> dict[str, Any]:
        """Plain dicts and lists, for json.dumps and the like."""
        plain: dict[str, Any] = _plain(self)
        return plain


class Page(list[Answer]):
    """One page of a list, itself a Python list. `next_page` asks for the next; None: the last one.

    `workflows`, `schedules` and `dead_letters`, as the JSON names the list, are the page itself.
    """

    next_page: str | None

    def __init__(self, entries: Iterable[Mapping[str, Any]], next_page: str | None = None) -> None:
        super().__init__(it if isinstance(it, Answer) else Answer(it) for it in entries)
        self.next_page = next_page

    @property
    def workflows(self) -> Page:
        """The entries of a list of workflows."""
        return self

    @property
    def schedules(self) -> Page:
        """The entries of a list of schedules."""
        return self

    @property
    def dead_letters(self) -> Page:
        """The entries of a list of dead letters."""
        return self


def to_answer(value: Any) -> Any:
    """Dicts as Answers, lists element by element, anything else as it is."""
    if isinstance(value, dict):
        return Answer(value)
    if isinstance(value, list | tuple):
        return [to_answer(item) for item in value]
    return value


def _plain(value: Any) -> Any:
    if isinstance(value, Answer):
        return {name: _plain(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value
