"""A review as text for people: the table of a terminal, and Markdown."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence

from perdure.audit import codes, words
from perdure.audit.chain import Layer
from perdure.audit.delays import Delay
from perdure.audit.figures import LayerFigures
from perdure.audit.review import Review

DELAYS_SHOWN_MAX = 4
COLUMNS = (
    "LAYER",
    "TRIES",
    "DELAYS MIN/EXPECTED/MAX (MS)",
    "PER TRY",
    "DEADLINE",
    "WORST CASE",
    "EXPECTED TRIES",
    "CALLS WORST/EXPECTED",
    "FIT",
)

Style = Callable[[str, str], str]


def unstyled(text: str, _severity: str) -> str:
    """`text` as it is: where standard output is no terminal."""
    return text


def table(review: Review, width: int = 100, style: Style = unstyled) -> str:
    """The review for a terminal of `width` columns. `style` colours a word by its severity."""
    blocks = [heading(review)]
    for index in range(len(review.chain.layers)):
        blocks.append(_layer_block(review, index, width))
    blocks.append("\n".join(summary(review)))
    blocks.append(_finding_lines(review, width, style))
    return "\n\n".join(blocks)


def heading(review: Review) -> str:
    """What is audited, under which assumptions."""
    chain = review.chain
    return (
        f"{chain.name}: {words.times(len(chain.layers), 'layer')}, failure rate "
        f"{words.count(chain.failure_rate)}, at most {words.count(chain.max_amplification)} calls"
    )


def _layer_block(review: Review, index: int, width: int) -> str:
    layer, its = review.chain.layers[index], review.figures.layers[index]
    name, *cells = row(layer, its)
    labels = [label.lower() for label in COLUMNS[1:]]
    body = "   ".join(f"{label} {cell}" for label, cell in zip(labels, cells, strict=True))
    wrapped = textwrap.wrap(
        body.replace(" ", "\N{NO-BREAK SPACE}").replace("\N{NO-BREAK SPACE}" * 3, "   "),
        max(40, width - 3),
        break_long_words=False,
    )
    lines = [f"{index + 1}. {name}", *(f"   {line}" for line in wrapped)]
    if layer.assumed:
        lines.append(f"   assumed (library default): {', '.join(layer.assumed)}")
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def row(layer: Layer, its: LayerFigures) -> list[str]:
    """A layer's cells, under COLUMNS."""
    tries = "no end" if layer.unbounded else words.whole(layer.attempts)
    return [
        layer.name,
        tries,
        delays(its.delays_ms) + (f" ({layer.jitter})" if its.delays_ms else ""),
        "none" if layer.per_try_timeout_ms is None else words.length(layer.per_try_timeout_ms),
        "none" if layer.deadline_ms is None else words.length(layer.deadline_ms),
        "unbounded" if its.worst_case_ms is None else words.length(its.worst_case_ms),
        words.count(its.expected_tries),
        f"{words.whole(its.cumulative_worst_amplification)}"
        f"/{words.count(its.cumulative_expected_amplification)}",
        "-" if its.tries_that_fit is None else words.whole(its.tries_that_fit),
    ]


def delays(each: Sequence[Delay]) -> str:
    """ "0/100/200, 0/200/400", the middle of a long list left out; "-" for none."""
    texts = ["/".join(words.count(round(part, 1)) for part in delay) for delay in each]
    if len(texts) > DELAYS_SHOWN_MAX:
        texts = [*texts[: DELAYS_SHOWN_MAX - 1], "…", texts[-1]]
    return ", ".join(texts) or "-"


def summary(review: Review) -> list[str]:
    """The figures of the whole chain, a line each."""
    its = review.figures
    innermost = review.chain.layers[-1].callee
    if review.chain.alternatives:
        innermost = "one of these, which stand side by side"
    lines = [
        f"one call at the top: at worst {words.times(its.worst_amplification, 'call')} to "
        f"{innermost}; expected {words.count(its.expected_amplification)} "
        "(every layer fails at the failure rate, no cascade)",
        f"expected when failures below are failures above: "
        f"{words.count(its.cascading_amplification)}; when only the innermost fails: "
        f"{words.count(its.outage_amplification)}",
        "when every try hangs until its timeout: "
        f"{words.times(its.timeouts_amplification, 'call')}, those whose caller has gone included",
    ]
    budgets = [each for each in review.chain.layers if each.retry_budget]
    if budgets:
        steady = 1.0
        for layer in review.chain.layers:
            ratio = layer.retry_budget.ratio if layer.retry_budget else layer.attempts - 1
            steady *= 1 + min(ratio, layer.attempts - 1)
        lines.append(f"in a long outage, with its retry budgets: at most {words.count(steady)}")
    return lines


def _finding_lines(review: Review, width: int, style: Style) -> str:
    if not review.findings:
        return "no findings"
    lines = []
    for each in review.findings:
        lines.append(
            f"{style(each.severity.ljust(6), each.severity)}  {each.code}  "
            f"{review.chain.layers[each.layer].name}"
        )
        lines += textwrap.wrap(
            each.detail, max(40, width - 8), initial_indent=" " * 8, subsequent_indent=" " * 8
        )
    lines += ["", tally(review)]
    return "\n".join(lines)


def tally(review: Review) -> str:
    """How many findings of which severity."""
    counted = {
        severity: sum(each.severity == severity for each in review.findings)
        for severity in codes.SEVERITIES
    }
    return ", ".join(f"{count} {severity}" for severity, count in counted.items() if count)


# --- Markdown ----------------------------------------------------------------


def markdown(review: Review, level: int = 1) -> str:
    """The review as Markdown, its headings from `level` on."""
    mark = "#" * level
    parts = [f"{mark} {cell(review.chain.name)}", heading(review), layers_markdown(review)]
    parts.append("\n".join(f"- {line}" for line in summary(review)))
    parts += [f"{mark}# Findings", findings_markdown(review)]
    return "\n\n".join(parts) + "\n"


def layers_markdown(review: Review) -> str:
    """The table of layers, the assumed settings marked."""
    rows = [
        row(layer, its)
        for layer, its in zip(review.chain.layers, review.figures.layers, strict=True)
    ]
    for cells, layer in zip(rows, review.chain.layers, strict=True):
        if layer.assumed:
            cells[0] += f" (assumed: {', '.join(layer.assumed)})"
    return markdown_table([name.capitalize() for name in COLUMNS], rows)


def findings_markdown(review: Review) -> str:
    """The findings as a table; "None." without any."""
    if not review.findings:
        return "None."
    rows = [
        [each.severity, each.code, review.chain.layers[each.layer].name, each.detail]
        for each in review.findings
    ]
    return markdown_table(["Severity", "Code", "Layer", "What happens, and what to change"], rows)


def markdown_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [list(columns), ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(cell(text) for text in line)} |" for line in lines)


def cell(text: str) -> str:
    """`text` so that Markdown shows it as it is, in a table too."""
    for sign in "\\|*`<[":
        text = text.replace(sign, f"\\{sign}")
    return text
