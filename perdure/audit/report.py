"""The repair side by side for people, and the review of a chain as a Markdown document."""

from __future__ import annotations

import json
import textwrap
from itertools import zip_longest
from typing import Any

import msgspec

from perdure.audit import codes, render, words
from perdure.audit.chain import as_data, tidy
from perdure.audit.repair import Change, Repair
from perdure.audit.review import Review

FIGURES = ("calls at worst", "calls expected", "longest call", "high findings", "other findings")


def side_by_side(found: Repair, width: int = 100) -> str:
    """Before and after in columns, then the reason of each change, then what is left to do."""
    half = max(30, (width - 2) // 2)
    lines = [f"{'BEFORE'.ljust(half)}  AFTER"]
    for index, layer in enumerate(found.before.chain.layers):
        lines += ["", f"{index + 1}. {layer.name}"]
        changed = {each.key: each for each in found.changes if each.layer == index}
        if not changed:
            lines.append("   unchanged")
        for key, each in changed.items():
            old, new = (f"{key} {_shown(value)}" for value in (each.before, each.after))
            lines += _columns(f"   {old}", f"   {new}", half)
            lines += _wrapped(f"because {each.reason}", width, "      ")
    lines.append("")
    for old, new in zip(figures(found.before), figures(found.after), strict=True):
        lines += _columns(old, new, half)
    lines += ["", "Left to do, by people:"]
    for item in found.left:
        lines += _wrapped(f"- {item}", width, "  ")
    remaining = [each for each in found.after.findings if each.severity != codes.INFO]
    if remaining:
        lines += ["", "Findings that no change of settings removes:"]
        names = [layer.name for layer in found.after.chain.layers]
        for finding in remaining:
            text = f"- {finding.severity} {finding.code} ({names[finding.layer]}): {finding.detail}"
            lines += _wrapped(text, width, "  ")
    return "\n".join(lines)


def figures(review: Review) -> list[str]:
    """The figures that tell before and after apart, one line each."""
    first = review.figures.layers[0].worst_case_ms
    values = (
        words.whole(review.figures.worst_amplification),
        words.count(review.figures.expected_amplification),
        "unbounded" if first is None else words.length(first),
        str(review.high),
        str(len(review.findings) - review.high),
    )
    return [f"{name} {value}" for name, value in zip(FIGURES, values, strict=True)]


def _shown(value: Any) -> str:
    return "none" if value is None else json.dumps(value, ensure_ascii=False)


def _columns(left: str, right: str, half: int) -> list[str]:
    pairs = zip_longest(_filled(left, half), _filled(right, half), fillvalue="")
    return [f"{old.ljust(half)}  {new}".rstrip() for old, new in pairs]


def _filled(text: str, width: int) -> list[str]:
    return textwrap.wrap(text, width, subsequent_indent="      ") or [""]


def _wrapped(text: str, width: int, indent: str) -> list[str]:
    first = indent if not text.startswith("- ") else ""
    return textwrap.wrap(text, max(40, width), initial_indent=first, subsequent_indent=indent)


# --- Markdown ----------------------------------------------------------------


def document(found: Repair) -> str:
    """The whole review: chain, findings, proposed policy, what is left to do, assumptions."""
    before, after = found.before, found.after
    parts = [
        f"# Retries, backoff and timeouts: {render.cell(before.chain.name)}",
        _verdict(before),
        "## The chain as it is",
        render.heading(before) + ".",
        render.layers_markdown(before),
        "\n".join(f"- {line}" for line in render.summary(before)),
        "## Findings",
        render.findings_markdown(before),
        "## Proposed policy",
        _changes(found.changes, before),
        _comparison(before, after),
        "```json\n" + json.dumps(as_data(after.chain), indent=2, ensure_ascii=False) + "\n```",
        "Findings after these changes: "
        + (render.tally(after) + "." if after.findings else "none."),
    ]
    if after.findings:
        parts.append(render.findings_markdown(after))
    parts += ["## Left to do", "\n".join(f"- [ ] {item}" for item in found.left)]
    parts += ["## Assumptions", "\n".join(f"- {item}" for item in assumptions(before))]
    return "\n\n".join(parts) + "\n"


def _verdict(review: Review) -> str:
    worst = words.times(review.figures.worst_amplification, "call")
    if review.high:
        verdict = f"**{words.times(review.high, 'high finding')}.**"
    else:
        verdict = "**No high finding.**"
    return f"{verdict} One call at the top can become {worst} to {review.chain.layers[-1].callee}."


def _changes(changes: tuple[Change, ...], before: Review) -> str:
    if not changes:
        return "Nothing to change."
    names = [layer.name for layer in before.chain.layers]
    rows = [
        [names[each.layer], each.key, _shown(each.before), _shown(each.after), each.reason]
        for each in changes
    ]
    return render.markdown_table(["Layer", "Setting", "Before", "After", "Why"], rows)


def _comparison(before: Review, after: Review) -> str:
    rows = [
        [name, old.removeprefix(f"{name} "), new.removeprefix(f"{name} ")]
        for name, old, new in zip(FIGURES, figures(before), figures(after), strict=True)
    ]
    return render.markdown_table(["", "Before", "After"], rows)


def assumptions(review: Review) -> list[str]:
    """Everything that the figures rest on and nobody has measured or set."""
    chain = review.chain
    found = [
        f"Assumed: every try fails with chance {words.count(chain.failure_rate)}, independently of "
        "the others; a layer may give its own rate.",
        "Assumed: expected figures multiply the layers' own (no cascade), except where a line says "
        "otherwise; the worst case multiplies all attempts.",
    ]
    for layer in chain.layers:
        if layer.failure_rate is not None:
            found.append(f"Given: {layer.name!r} fails with {words.count(layer.failure_rate)}.")
        for key in layer.assumed:
            shown = (
                _shown(tidy(msgspec.to_builtins(getattr(layer, key))))
                if hasattr(layer, key)
                else "?"
            )
            where = (layer.origin or {}).get(key, "library default")
            found.append(f"Assumed: {layer.name!r} has {key} {shown} ({where}).")
        if layer.idempotent and "idempotent" not in layer.assumed and layer.retries:
            found.append(f"Taken as said: calls of {layer.name!r} are idempotent.")
    return found
