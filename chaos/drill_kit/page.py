"""The report for people: one HTML file that needs nothing else, for screen and paper, light and
dark.
"""

from __future__ import annotations

from collections.abc import Iterator
from html import escape

from chaos.drill_kit import chart, spreads, words
from chaos.drill_kit.base import Options
from chaos.drill_kit.glossary import GLOSSARY
from chaos.drill_kit.perform import Performance
from chaos.drill_kit.report import Report
from chaos.drill_kit.style import CHART, COLOURS, PAGE
from chaos.drill_kit.timeline import Timeline

EVENTS_MAX = 2_000

LEGEND = (
    ("returned", "attempt returned"),
    ("failed", "attempt failed"),
    ("killed", "attempt cut off by a kill"),
    ("open", "attempt without an end"),
    ("strike", "fault, and what it hit"),
    ("outage", "until it was over"),
    ("effects", "effects applied so far"),
    ("repeat", "a repeat: effect asked for again, and ignored"),
)


def page(found: Performance) -> str:
    """The whole page."""
    report = found.report
    name = escape(report.drill)
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            '<meta name="color-scheme" content="light dark">',
            f"<title>Drill {name}: {escape(report.verdict)}</title>",
            f"<style>{COLOURS}{CHART}{PAGE}</style></head><body><main>",
            *_head(found),
            *_tiles(report, found.drill.recovery),
            *_violations(report),
            *_figure(found.timeline),
            *(spreads.figure(each) for each in found.spreads),
            *_counts(report, found.drill.recovery),
            *_glossary(),
            *_struck(found.timeline),
            *_events(found.timeline),
            *_foot(report, found.options, found.drill.takes),
            "</main></body></html>\n",
        ]
    )


def _head(found: Performance) -> Iterator[str]:
    report = found.report
    sentence = words.sentence(report, found.drill.inconclusive)
    yield f"<header><p class=kicker>Perdure drill</p><h1>{escape(report.drill)}</h1>"
    yield f"<p class=does>{escape(found.drill.does)}</p>"
    yield f'<p class="verdict {report.verdict}"><b>{report.verdict}</b> {escape(sentence)}</p>'
    yield "</header>"


def _tiles(report: Report, recovery: str) -> Iterator[str]:
    tiles: list[tuple[str, str, str]] = []
    if report.workflows:
        name = f"of {words.number(report.workflows)} workflows completed"
        tiles.append((words.number(report.completed), name, ""))
    if report.keys:
        bad = "bad" if report.applied_once != report.keys else "good"
        name = f"of {words.number(report.keys)} effects applied exactly once"
        tiles.append((words.number(report.applied_once), name, bad))
        tiles.append((words.number(report.lost), "lost", "bad" if report.lost else "good"))
        tiles.append((words.number(report.doubled), "doubled", "bad" if report.doubled else "good"))
        tiles.append(
            (words.number(report.delivered_more_than_once), "asked for more than once", "")
        )
    fired = sum(report.faults_fired.values())
    tiles.append((words.number(fired), "faults fired", ""))
    if report.recovery_ms.median is not None:
        tiles.append((words.length(report.recovery_ms.median), f"{recovery} (median)", ""))
    tiles.append((words.length(report.took_ms), "in all", ""))
    cells = "".join(
        f'<div class="tile {style}"><b>{escape(value)}</b><span>{escape(name)}</span></div>'
        for value, name, style in tiles
    )
    yield f"<section class=tiles>{cells}</section>"


def _violations(report: Report) -> Iterator[str]:
    if report.violations:
        items = "".join(f"<li>{escape(text)}</li>" for text in report.violations)
        yield f"<section><h2>Violated</h2><ul class=violations>{items}</ul></section>"


def _figure(timeline: Timeline) -> Iterator[str]:
    if not (timeline.attempts or timeline.faults or timeline.effects):
        return
    used = {it.ending for it in timeline.attempts}
    if timeline.effects:
        used |= {"effects"} | {"repeat" for it in timeline.effects if not it.first}
    if timeline.faults:
        used |= {"strike"} | {"outage" for it in timeline.faults if it.until_ms is not None}
    entries = "".join(
        f'<span><i class="{style}"></i>{escape(text)}</span>'
        for style, text in LEGEND
        if style in used
    )
    crowded = (
        "the taller the colour, the more attempts ran at that time"
        if len(timeline.attempts) > chart.BARS_MAX
        else "each bar is one attempt, from its begin to its end"
    )
    yield "<section><h2>What happened when</h2><figure>"
    yield f'<div class="legend">{entries}</div><div class=wide>{chart.draw(timeline)}</div>'
    yield (
        "<figcaption>Time runs from left to right. A cross at the top is a fault; its line goes "
        f"through the process that it hit, or through all of them; where its name has no room, "
        f"it is among the faults below. In a worker's row {crowded}. "
        "Point at anything to read what it is.</figcaption></figure></section>"
    )


def _counts(report: Report, recovery: str) -> Iterator[str]:
    yield "<section><h2>Counts</h2><table class=counts><tbody>"
    for name, value in words.rows(report, recovery):
        style = ' class="sub"' if name.startswith("  ") else ""
        yield f"<tr><th{style}>{escape(name.strip())}</th><td>{escape(str(value))}</td></tr>"
    yield "</tbody></table></section>"


def _glossary() -> Iterator[str]:
    yield "<section><details><summary>What the words mean</summary><dl class=words>"
    for word, meaning in GLOSSARY:
        yield f"<dt>{escape(word)}</dt><dd>{escape(meaning)}</dd>"
    yield "</dl></details></section>"


def _struck(timeline: Timeline) -> Iterator[str]:
    """Every fault in a line, as far as there is room, for the crosses without a name."""
    if not timeline.faults:
        return
    ordered = sorted(timeline.faults, key=lambda it: it.at_ms)
    scale, shown = chart.Scale(timeline), ordered[:EVENTS_MAX]
    summary = f"Each fault ({words.number(len(ordered))})"
    yield f"<section><details><summary>{summary}</summary><table class=events><tbody>"
    for fault in shown:
        yield f"<tr><td>{scale.at(fault.at_ms)}</td><td>{escape(chart.named(fault))}</td></tr>"
    yield "</tbody></table>"
    if left := len(ordered) - len(shown):
        yield f"<p>and {words.number(left)} more, in report.json</p>"
    yield "</details></section>"


def _events(timeline: Timeline) -> Iterator[str]:
    if not timeline.events:
        return
    shown = timeline.events[:EVENTS_MAX]
    left = len(timeline.events) - len(shown)
    summary = f"What the drill said ({words.number(len(timeline.events))} lines)"
    yield f"<section><details><summary>{summary}</summary><table class=events><tbody>"
    for event in shown:
        at_s = (event.at_ms - timeline.began_ms) / 1_000
        yield f"<tr><td>{at_s:.2f} s</td><td>{escape(event.text)}</td></tr>"
    yield "</tbody></table>"
    if left:
        yield f"<p>and {words.number(left)} more, in report.json</p>"
    yield "</details></section>"


def _foot(report: Report, options: Options, takes: tuple[str, ...]) -> Iterator[str]:
    said = [f"--seed {report.seed}"]
    said += [
        f"--{name.replace('_', '-')} {value:g}"
        for name in takes
        if (value := getattr(options, name))
    ]
    command = escape(f"perdure drill run {report.drill} {' '.join(said)}")
    yield (
        f"<footer>The same plan again, though not the same timing: <code>{command}</code></footer>"
    )
