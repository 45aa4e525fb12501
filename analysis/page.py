"""A plan as one self-contained HTML page: no script, no network, the figure inside."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from analysis.figures import MEASURES
from analysis.plan.purchase import commands
from analysis.plan.report import Candidate, Plan, sentences
from occupancy.record.recipe import K_text
from occupancy.runs import open_run

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, sans-serif; color: #1f2933;
  max-width: 62rem; margin: 2.5rem auto; padding: 0 1.25rem; }
h1 { font-size: 1.7rem; margin: 0 0 .3rem; } h2 { font-size: 1.15rem; margin: 2.2rem 0 .4rem; }
p.lead { color: #52606d; margin-top: 0; } img { width: 100%; }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
th, td { text-align: right; padding: .3rem .6rem; border-bottom: 1px solid #e4e7eb; }
th { font-weight: 600; color: #52606d; } th:first-child, td:first-child { text-align: left; }
tr.best td { background: #0b6e4f; color: white; } tr.kept td { background: #e3f4ec; }
.verdict { font-weight: 600; } .warn { color: #7c5e10; }
code { background: #f0f2f5; padding: .1rem .3rem; border-radius: 3px; overflow-wrap: anywhere; }
details { margin: .4rem 0; }
"""


def plan_page(plans: Sequence[Plan], *, pilot: Path, figure: Path, file: Path) -> Path:
    """Write plans of one pilot, smallest budget first, into `file`; returns its path."""
    run = open_run(pilot)
    made_of = plans[0].pilot
    info = run.info
    image = b64encode(figure.read_bytes()).decode()
    parts = [
        "<!doctype html><html lang='en'><meta charset='utf-8'><title>fewsteps plan</title>",
        f"<meta name='viewport' content='width=device-width'><style>{_STYLE}</style>",
        "<h1>How many teacher turns to buy</h1>",
        f"<p class='lead'>From a pilot of {made_of['episodes']:,} episodes on {made_of['tasks']} tasks of "
        f"{escape(str(info['environment']))}: student <code>{escape(str(info['student']))}</code>, "
        f"teacher <code>{escape(str(info['teacher']))}</code>, {made_of['tokens']:,} teacher tokens.</p>",
        f"<img alt='Gain, cost and gain for each token by K' src='data:image/png;base64,{image}'>",
        *(part for plan in plans for part in _section(plan)),
        "<h2>How to read this</h2>",
        "<p>G(K) is the success that K teacher turns at a student's context add, the student finishing the "
        "episode before and after (hand-backs). m(K) is what such a context costs, by cutting whole "
        "continuations at K. Contexts are trajectory-uniform; errors are clustered by task; bands and the "
        "set of depths come from 500 bootstrap draws of tasks. The rule buys depth until its marginal value "
        "for a token falls to the average one.</p>",
        f"<p>Recipe <code>{run.recipe.hash}</code>, seed {info['seed']}, tasks "
        f"<code>{escape(str(info['tasks']))}</code>.</p></html>",
    ]
    file.write_text("\n".join(parts), "utf-8")
    return file


def _section(plan: Plan) -> Iterable[str]:
    verdict, *rest = sentences(plan)
    yield f"<h2>With {plan.budget:,.0f} teacher tokens</h2>"
    yield f"<p class='verdict'>{escape(verdict.replace('* ', '').replace('~ ', ''))}</p>"
    if plan.level:
        heads: tuple[str, ...] = (
            "recipe",
            "K",
            "r",
            "demos",
            "contexts",
            "n",
            "pass@1 (90 % band)",
            "P(best)",
        )
    else:
        heads = ("K", "contexts", "n", "gain G(K) ± 1 SE", "cost m(K)", "value (90 % band)", "P(best)")
    yield f"<p class='lead'>m(K): {MEASURES[plan.axis]} of a context. Value: {escape(plan.unit)}.</p>"
    yield "<table><tr>" + "".join(f"<th>{head}</th>" for head in heads) + "</tr>"
    kept = () if plan.fall_back else plan.not_worse
    for c in plan.candidates:
        best = c == plan.recommended and not plan.fall_back
        cells = _prediction(c) if plan.level else _gain(c, plan)
        row = "".join(f"<td>{cell}</td>" for cell in cells)
        yield f"<tr class='{'best' if best else 'kept' if c in kept else ''}'>{row}</tr>"
    yield "</table>"
    yield from (f"<p><code>{escape(command)}</code></p>" for command in commands(plan))
    yield "<details><summary>notes</summary>"
    yield from (f"<p class='{'warn' if line.startswith('!') else ''}'>{escape(line)}</p>" for line in rest)
    yield "</details>"


def _prediction(c: Candidate) -> Iterable[object]:
    return (
        c.recipe,
        K_text(c.K),
        f"{c.r_tokens:g}",
        f"{c.demos:,}",
        f"{c.contexts:,}",
        c.n,
        f"{c.pass_at_1:.3f} ({c.low:.3f} to {c.high:.3f})",
        f"{c.p_best:.0%}",
    )


def _gain(c: Candidate, plan: Plan) -> Iterable[object]:
    m = plan.costs[plan.axis]
    return (
        K_text(c.K),
        f"{c.contexts:,}",
        c.n,
        f"{c.gain:+.3f} ± {c.gain_se:.3f}",
        f"{m[int(min(c.K, len(m))) - 1]:,.3g}",
        f"{c.value:.2f} ({c.value_low:.2f} to {c.value_high:.2f})",
        f"{c.p_best:.0%}",
    )
