"""What is changed in the engine while a bug is planted, put back afterwards."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any


class Patches:
    """Attributes and entries that were changed, with what they were."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()

    def set(self, owner: Any, name: str, value: Any) -> None:
        """Change an attribute of a class or module until `undo`."""
        known = vars(owner)
        if name in known:
            self._stack.callback(setattr, owner, name, known[name])
        else:
            self._stack.callback(delattr, owner, name)
        setattr(owner, name, value)

    def item(self, mapping: dict[Any, Any], key: Any, value: Any) -> None:
        """Change an entry of a table until `undo`."""
        self._stack.callback(mapping.__setitem__, key, mapping[key])
        mapping[key] = value

    def around(self, owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
        """Put `wrap(what was there)` in the place of a function, until `undo`."""
        self.set(owner, name, wrap(getattr(owner, name)))

    def nothing(self, owner: Any, name: str, result: Any = None) -> None:
        """Have a function do nothing and return `result`, until `undo`."""
        self.set(owner, name, lambda *args, **kwargs: result)

    def undo(self) -> None:
        """Put everything back."""
        self._stack.close()
