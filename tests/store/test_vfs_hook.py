"""A test can put itself between history and the disk; nobody else notices that it could."""

from __future__ import annotations

from pathlib import Path

import pytest

from perdure.store import vfs_hook
from perdure.store.protocol import StoreError


def register(data_dir: Path) -> str:
    return f"vfs of {data_dir.name}"


def test_without_the_variable_the_disk_is_the_systems_own(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv(vfs_hook.VARIABLE, raising=False)
    assert vfs_hook.asked_for(tmp_path) is None


def test_the_named_function_is_told_the_directory_and_names_the_vfs(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv(vfs_hook.VARIABLE, f"{__name__}:register")
    assert vfs_hook.asked_for(tmp_path / "data") == "vfs of data"


@pytest.mark.parametrize("target", ["nothing.of.this:name", f"{__name__}:nothing", __name__, ":x"])
def test_a_name_of_nothing_is_refused_with_the_variable(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, target: str
) -> None:
    monkeypatch.setenv(vfs_hook.VARIABLE, target)
    with pytest.raises(StoreError, match=vfs_hook.VARIABLE):
        vfs_hook.asked_for(tmp_path)
