"""The report for people: it is well formed whatever it holds, and shows each thing once."""

from __future__ import annotations

import itertools
from html.parser import HTMLParser
from xml.etree import ElementTree

import msgspec
import pytest

from chaos.drill_kit import Drill, Options, Report, Verdict, chart, pages, spreads, svg, words
from chaos.drill_kit.glossary import GLOSSARY
from chaos.drill_kit.lanes import lanes, running
from chaos.drill_kit.page import page
from chaos.drill_kit.perform import Performance
from chaos.drill_kit.report import Operations, Spread
from chaos.drill_kit.timeline import Applied, Attempt, Event, Fault, Timeline

NASTY = "<script>alert(1)</script>&\"'"
VOID = {"meta", "!doctype", "br"}


def attempt(lane="worker-1", began_ms=1_000, ended_ms=1_200, ending="returned", label="w/a #1"):
    return Attempt(lane=lane, label=label, began_ms=began_ms, ended_ms=ended_ms, ending=ending)


def timeline(*attempts, faults=(), effects=(), events=()):
    return Timeline(
        began_ms=0,
        ended_ms=10_000,
        faults=tuple(faults),
        attempts=attempts,
        effects=tuple(effects),
        events=tuple(events),
    )


def performance(seen, **report):
    drill = Drill(
        name="flaky",
        does=NASTY,
        inconclusive=NASTY,
        run=lambda arena: True,
        takes=("workflows", "kills"),
    )
    made = Report(**{"drill": "flaky", "seed": 7, "verdict": Verdict.PROVED, **report})
    return Performance(
        report=made, drill=drill, options=Options(seed=7, workflows=3), timeline=seen
    )


class Balance(HTMLParser):
    """Fails where a tag is closed that is not open."""

    def __init__(self):
        super().__init__()
        self.open, self.seen = [], []

    def handle_starttag(self, tag, attrs):
        self.seen.append(tag)
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def elements(picture, style):
    root = ElementTree.fromstring(picture)
    return [each for each in root.iter() if each.get("class") == style]


def test_a_page_is_well_formed_and_says_whatever_it_is_told_as_text():
    seen = timeline(
        attempt(lane=NASTY, label=NASTY),
        faults=[Fault(kind=NASTY, target=NASTY, at_ms=10, note=NASTY)],
        effects=[Applied(at_ms=20, label=NASTY, first=True)],
        events=[Event(at_ms=5, text=NASTY)],
    )
    text = page(
        performance(
            seen,
            verdict=Verdict.VIOLATED,
            violations=(NASTY,),
            faults_fired={NASTY: 1},
            figures={NASTY: NASTY},
        )
    )
    balance = Balance()
    balance.feed(text)
    assert balance.open == []
    assert "script" not in balance.seen
    assert text.count("&lt;script&gt;") >= 8


def test_a_page_needs_nothing_else():
    text = page(performance(timeline(attempt()))).replace('xmlns="http://www.w3.org/2000/svg"', "")
    for word in ("http://", "https://", "<link", "<img", "@import", "src="):
        assert word not in text


def test_a_page_says_how_to_run_the_same_plan_again():
    text = page(performance(timeline()))
    assert "perdure drill run flaky --seed 7 --workflows 3</code>" in text


@pytest.mark.parametrize("verdict", list(Verdict))
def test_each_verdict_is_named_and_has_a_look_of_its_own(verdict):
    text = page(performance(timeline(), verdict=verdict, violations=("what was wrong",)))
    assert f'<p class="verdict {verdict}"><b>{verdict}</b>' in text
    assert f".verdict.{verdict}" in text


def test_each_attempt_is_a_bar_from_its_begin_to_its_end_with_its_story_as_a_tooltip():
    picture = chart.draw(timeline(attempt(began_ms=2_500, ended_ms=5_000, ending="killed")))
    [bar] = elements(picture, "killed")
    assert float(bar.get("x")) == chart.LEFT + chart.PLOT / 4
    assert float(bar.get("width")) == chart.PLOT / 4
    assert bar[0].text == "w/a #1, 2.50 s to 5.00 s (2500 ms)"


def test_attempts_that_overlap_stand_in_rows_of_their_own_and_a_row_is_used_again():
    bars = [attempt(began_ms=0, ended_ms=10), attempt(began_ms=5, ended_ms=20)]
    [lane] = lanes(timeline(*bars, attempt(began_ms=10, ended_ms=30)))
    assert [bar.row for bar in lane.bars] == [0, 1, 0]
    assert lane.rows == 2


def test_lanes_stand_in_the_order_in_which_people_count():
    names = ["worker-10", "worker-2", "scheduler", "pid 7", "history", "quarantine-1", "relay"]
    found = lanes(timeline(*(attempt(lane=name) for name in names[:2]), faults=_faults(names[2:])))
    order = ["history", "scheduler", "relay", "worker-2", "worker-10", "quarantine-1", "pid 7"]
    assert [lane.name for lane in found] == order


def _faults(targets):
    return [Fault(kind="SIGKILL", target=target, at_ms=5_000) for target in targets]


def test_a_fault_of_one_process_goes_through_its_lane_and_one_of_the_node_through_all():
    seen = timeline(attempt(), attempt(lane="worker-2"), faults=_faults(["worker-2", "node"]))
    one, whole = elements(chart.draw(seen), "strike")
    assert float(one.get("y1")) > float(whole.get("y1"))
    assert float(one.get("y2")) < float(whole.get("y2"))


def test_names_of_what_was_hit_never_overlap():
    faults = [Fault(kind="SIGKILL", target="worker-1", at_ms=100 * n) for n in range(100)]
    found = elements(chart.draw(timeline(faults=faults)), "hit")
    assert found
    for row in {each.get("y") for each in found}:
        xs = sorted(float(each.get("x")) for each in found if each.get("y") == row)
        gaps = [after - before for before, after in itertools.pairwise(xs)]
        assert min(gaps) > chart.CHAR_PX * len("worker-1")


def test_a_crowd_of_attempts_is_drawn_as_a_mountain_of_few_shapes():
    crowd = [
        attempt(began_ms=n, ended_ms=n + 300, ending="failed" if n % 3 else "returned")
        for n in range(0, 9_000, 2)
    ]
    assert len(crowd) > chart.BARS_MAX
    picture = chart.draw(timeline(*crowd))
    assert len(elements(picture, "failed")) == len(elements(picture, "returned")) == 1
    assert len(picture) < 100_000


def test_what_ran_in_a_part_of_the_time_is_counted_at_its_middle():
    found = running(
        [attempt(began_ms=0, ended_ms=30), attempt(began_ms=20, ended_ms=None, ending="open")],
        began_ms=0,
        ended_ms=100,
        bins=10,
    )
    assert [each["returned"] for each in found] == [1, 1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert [each["open"] for each in found] == [0, 0, 1, 1, 1, 1, 1, 1, 1, 1]


def test_effects_rise_with_the_first_application_and_repeats_are_marked_on_the_line():
    effects = [
        Applied(at_ms=1_000, label="w/a #1", first=True),
        Applied(at_ms=2_000, label="w/a #2", first=False),
        Applied(at_ms=3_000, label="w/b #1", first=True),
    ]
    picture = chart.draw(timeline(effects=effects))
    [repeat] = elements(picture, "repeat")
    assert "ignored" in repeat[0].text
    [curve] = elements(picture, "curve")
    heights = [float(point.split(",")[1]) for point in curve.get("points").split()]
    assert heights == sorted(heights, reverse=True)
    assert len(set(heights)) == 3


@pytest.mark.parametrize("length_s", [0.2, 3, 9.9, 61, 119, 3_700, 90_000])
def test_an_axis_has_a_few_round_instants_from_zero_on(length_s):
    found = svg.ticks(length_s)
    assert found[0] == 0
    assert 1 <= len(found) <= svg.TICKS_MAX + 1
    assert found[-1] <= length_s


def test_values_outside_of_the_range_count_in_the_outermost_bars():
    assert spreads.bins([-1, 0, 4.9, 5, 10, 11], 0, 10, 2) == [3, 3]


def test_both_files_are_written_and_the_data_can_be_read_back(tmp_path):
    found = performance(timeline(attempt()))
    paths = pages.write(found, tmp_path / "a" / "b")
    assert [path.name for path in paths] == ["report.json", "report.html", "timeline.svg"]
    ElementTree.fromstring(paths[2].read_text())
    body = msgspec.json.decode(paths[0].read_bytes())
    assert msgspec.convert(body["timeline"], Timeline) == found.timeline
    assert body["report"]["verdict"] == "proved"


def test_every_fault_is_named_in_the_page_also_where_its_cross_has_no_room_for_a_name():
    faults = [Fault(kind="SIGKILL", target=f"worker-{n}", at_ms=5_000 + n) for n in range(40)]
    made = page(performance(timeline(faults=faults)))
    assert len(elements(chart.draw(timeline(faults=faults)), "hit")) < 40
    assert all(f"<td>SIGKILL: worker-{n}</td>" in made for n in range(40))


def test_the_page_explains_its_words_and_says_what_its_recovery_measures():
    seen = performance(timeline(), recovery_ms=Spread(median=41, max=936))
    made = page(seen)
    assert f"{seen.drill.recovery} (median)" in made
    assert all(f"<dt>{word}</dt>" in made for word, _ in GLOSSARY)


@pytest.mark.parametrize(
    ("refused", "dead", "said"),
    [
        (10, 5, "10 refused (10 as dead attempts must be)"),
        (10, 0, "10 refused,"),
        (3, 5, "3 refused,"),
    ],
)
def test_refusals_that_had_to_be_are_told_as_such(refused, dead, said):
    report = Report(
        drill="flaky",
        seed=1,
        verdict=Verdict.PROVED,
        stale_refused=dead,
        operations=Operations(ok=1, refused=refused),
    )
    assert said in dict(words.rows(report))["answers to the drill's clients"]
