"""The tutorial as a notebook, from recorded data to a decision: `marimo edit docs/notebook.py` opens it."""

import marimo

app = marimo.App()


@app.cell
def _():
    import marimo as mo

    mo.md("""
    # From recorded data to a decision

    This notebook is executed whenever the site is built; `marimo edit docs/notebook.py` opens it in a clone.
    A pilot of 60 tasks was recorded on ALFWorld, with SmolLM2-135M-Instruct as the student and a scripted
    expert as the teacher. What should the next 100,000 teacher tokens buy?
    """)
    return (mo,)


@app.cell
def _():
    from pathlib import Path

    import analysis
    from occupancy.runs import open_run

    recorded = Path(analysis.__file__).parent
    pilot = open_run(recorded / "pilot")
    return Path, pilot, recorded


@app.cell
def _(mo):
    mo.md("""
    ## Look at the data

    Rollouts of the student, whole continuations and demonstrations of the teacher, and how they ended. In a
    hand-back the teacher plays k turns from a state of the student's, and the student finishes.
    """)
    return


@app.cell
def _(pilot):
    episodes = pilot.read("episodes").to_pandas()
    by_kind = episodes.groupby(["kind", "status"])["R"]
    by_kind.agg(["size", "mean"]).reset_index()
    return


@app.cell
def _(mo):
    mo.md("""
    ## Plan

    The answer in words, then the best candidates with their pass@1, 90 % bands and costs. The demonstrations
    that the student was made of are paid for, and every student of the plan is trained on them too.
    """)
    return


@app.cell
def _(pilot, recorded):
    from analysis.plan.planner import plan

    found = plan(pilot.folder, already=[recorded / "demonstrations"], budget=100_000, pool=3553)
    found
    return (found,)


@app.cell
def _(found):
    from analysis.figures.plan import plan_figure_of

    plan_figure_of(found)
    return


@app.cell
def _(mo):
    mo.md("""
    ## What another recipe would have made of it

    Whole continuations can be cut to any K. This is a data set of op-short at K = 3, half of it
    demonstrations, at 1,500 teacher tokens: the last of its traces, with the tokens that each is trained on.
    """)
    return


@app.cell
def _(Path, pilot):
    from tempfile import TemporaryDirectory

    from agentloop.cuts.cut import Cell, cut
    from occupancy import preset

    cell = Cell(preset("op-short", K=3, T_max=50), r=0.5, budget=1500)
    with TemporaryDirectory() as folder:
        traces = cut(pilot, cell, Path(folder) / "cut-3").read("traces").to_pandas()
    traces[["episode_id", "C_tr"]].tail(8)
    return


@app.cell
def _(mo):
    mo.md("""
    ## Compare what was measured

    Rewards of four attempts at each task, by two students. Differences are paired by task. Four tasks are
    too few to conclude anything: `detectable` is the smallest difference that would probably have been found.
    """)
    return


@app.cell
def _():
    from analysis.compare import compare

    compare(
        {
            "demonstrations": {
                "t1": [1, 0, 0, 1],
                "t2": [0, 0, 0, 0],
                "t3": [1, 0, 1, 1],
                "t4": [0, 0, 1, 0],
            },
            "continuations": {"t1": [1, 1, 1, 1], "t2": [0, 1, 0, 0], "t3": [1, 1, 1, 1], "t4": [0, 1, 1, 0]},
        }
    )
    return


if __name__ == "__main__":
    app.run()
