"""DirectoryEffects in a verification."""

from __future__ import annotations


def test_a_directory_of_files_is_an_effect_that_happens_once_and_writes_nothing(
    one_activity, tmp_path
):
    body = "out.apply_once(fn=lambda directory: (directory / 'a').write_text('a'))"
    head = "from perdure.effects import DirectoryEffects\nout = DirectoryEffects('out')\n"
    result = one_activity(body, head=head)
    assert result.verdict == "proved"
    assert [effect.name for effect in result.effects] == ["out:keys"]
    assert list(tmp_path.rglob("a")) == []
