"""The look of a report. Colours were chosen to be told apart by people who see red and green alike:
they differ in lightness too.
"""

from __future__ import annotations

COLOURS = """
:root{--paper:#fff;--ink:#1c2430;--soft:#5b6675;--line:#dde2e9;--lane:#f4f6f9;--returned:#5aa9a0;
--failed:#e9b44c;--killed:#c8324a;--open:#9aa4b2;--strike:#c8324a;--outage:#c8324a;
--effects:#3f6fb5;--repeat:#d9822b;--good:#1f7a5c;--bad:#c8324a;--maybe:#9a6a00;
--goodback:#e6f4ee;--badback:#fbe9ec;--maybeback:#fdf3dc}
@media (prefers-color-scheme:dark){:root{--paper:#14181f;--ink:#e6e9ee;--soft:#9aa6b6;
--line:#2c3440;--lane:#1b212a;--returned:#4d9c93;--failed:#d8a23a;--killed:#f0566d;
--open:#69758a;--strike:#f0566d;--outage:#f0566d;--effects:#6f9fe0;--repeat:#f09a45;
--good:#5fc79d;--bad:#f0566d;--maybe:#e0b050;--goodback:#17332a;--badback:#3a1a21;
--maybeback:#352a12}}
"""

CHART = """
svg text{fill:var(--soft);font-size:11px;font-family:inherit}
svg .name{fill:var(--ink);font-size:12.5px}svg .hit{fill:var(--killed)}
svg .ground{fill:var(--lane)}svg .grid{stroke:var(--line);stroke-width:1}
svg .returned{fill:var(--returned)}svg .failed{fill:var(--failed)}svg .killed{fill:var(--killed)}
svg .open{fill:var(--open)}svg .strike{stroke:var(--strike);stroke-width:1.3}
svg .outage{fill:var(--outage);opacity:.16}
svg .mark{stroke:var(--strike);stroke-width:2;fill:none}
svg .effects{fill:var(--effects);opacity:.22}
svg .curve{stroke:var(--effects);stroke-width:1.6;fill:none}svg .repeat{fill:var(--repeat)}
svg .expected{stroke:var(--bad);stroke-width:1.5;stroke-dasharray:5 4}
svg .edge{stroke:var(--soft);stroke-width:1}
svg rect:hover,svg polygon:hover{filter:brightness(.85)}
"""

PAGE = """
*{box-sizing:border-box}
body{margin:0;background:var(--paper);color:var(--ink);font:15px/1.5 system-ui,-apple-system,
"Segoe UI",Roboto,"DejaVu Sans",sans-serif}
main{max-width:1180px;margin:0 auto;padding:28px 24px 40px}
h1{font-size:30px;line-height:1.2;margin:0}h2{font-size:18px;margin:32px 0 10px}
.kicker{margin:0;color:var(--soft);font-size:13px;letter-spacing:.04em}
.does{margin:4px 0 16px;color:var(--soft)}
.verdict{margin:0;padding:12px 16px;border-radius:6px;border-left:5px solid}
.verdict b{text-transform:uppercase;letter-spacing:.05em;margin-right:10px}
.verdict.proved{border-color:var(--good);background:var(--goodback)}
.verdict.proved b{color:var(--good)}
.verdict.violated{border-color:var(--bad);background:var(--badback)}
.verdict.violated b{color:var(--bad)}
.verdict.inconclusive{border-color:var(--maybe);background:var(--maybeback)}
.verdict.inconclusive b{color:var(--maybe)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(112px,1fr));gap:10px;
margin-top:16px}
.tile{border:1px solid var(--line);border-radius:6px;padding:10px 12px}
.tile b{display:block;font-size:21px;line-height:1.2;font-variant-numeric:tabular-nums;
white-space:nowrap}.tile span{color:var(--soft);font-size:13px}.tile.good b{color:var(--good)}
.tile.bad b{color:var(--bad)}figure{margin:0}
figcaption{color:var(--soft);font-size:13px;margin-top:6px;max-width:85ch}.wide{overflow-x:auto}
svg{display:block;width:100%;min-width:760px;height:auto}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;font-size:13px;color:var(--soft);
margin-bottom:4px}.legend span{display:inline-flex;align-items:center;gap:6px}
.legend i{width:16px;height:8px;border-radius:1px}.legend .returned{background:var(--returned)}
.legend .failed{background:var(--failed)}.legend .killed{background:var(--killed)}
.legend .open{background:var(--open)}
.legend .strike{background:var(--strike);width:2px;height:14px}
.legend .outage{background:var(--outage);opacity:.25}
.legend .expected{background:var(--bad);height:2px}
.legend .effects{background:var(--effects);opacity:.5}
.legend .repeat{background:var(--repeat);width:8px;transform:rotate(45deg)}
table{border-collapse:collapse}
td,th{padding:4px 18px 4px 0;text-align:left;font-weight:400;border-bottom:1px solid var(--line)}
td{font-variant-numeric:tabular-nums}.counts{min-width:min(560px,100%)}
.counts td{text-align:right;padding-right:0}.counts .sub{padding-left:22px;color:var(--soft)}
.events td{font-size:13px;vertical-align:top}
.events td:first-child{text-align:right;color:var(--soft);white-space:nowrap}
.violations{margin:0;padding-left:20px}.violations li{color:var(--bad);overflow-wrap:anywhere}
.words dt{font-weight:600;margin-top:8px}.words dd{margin:0;color:var(--soft);max-width:85ch}
summary{cursor:pointer;color:var(--soft);margin-top:24px}
footer{margin-top:32px;color:var(--soft);font-size:13px}
code{font:12.5px ui-monospace,"DejaVu Sans Mono",monospace;background:var(--lane);
padding:2px 6px;border-radius:4px}@media print{details{display:none}}
"""
