"""The figure of occupancies: the most visited states under several conventions, with standard errors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np

from occupancy.record.drawing import looks, panels, styled

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from occupancy.statistics.exact import Occupancy


def occupancy_frame(
    occupancies: Mapping[str, Occupancy], names: Sequence[object], *, top: int
) -> pd.DataFrame:
    """Frame of `conventions_figure`: the `top` states that are most visited under the first convention."""
    import pandas as pd

    first = next(iter(occupancies.values())).probability
    rows = []
    for state in np.argsort(-first, kind="stable")[:top]:
        for convention, law in occupancies.items():
            se = 0.0 if law.standard_error is None else float(law.standard_error[state])
            p = float(law.probability[state])
            rows.append(
                {
                    "state": str(names[state] if len(names) else state),
                    "convention": convention,
                    "probability": p,
                    "se": se,
                }
            )
    return pd.DataFrame(rows)


@styled
def conventions_figure(frame: pd.DataFrame) -> Figure:
    """Occupancies of the most visited states under two averaging conventions.

    Args:
        frame: state, convention, probability, se.
    """
    figure, (axis,) = panels(width=6, height=0.9 + 0.32 * frame["state"].nunique())
    states = list(dict.fromkeys(frame["state"]))[::-1]
    names = list(dict.fromkeys(frame["convention"]))
    for shift, look, name in zip(np.linspace(-0.15, 0.15, len(names)), looks(), names, strict=False):
        rows = frame[frame["convention"] == name]
        places = [states.index(state) + shift for state in rows["state"]]
        axis.errorbar(
            rows["probability"],
            places,
            xerr=rows["se"],
            fmt=look["marker"],
            ms=5,
            color=look["color"],
            capsize=2,
            lw=1,
            label=name,
        )
    axis.set_yticks(range(len(states)), states)
    axis.set(
        xlabel="fraction of contexts, ± 1 SE clustered by task",
        title="The same contexts, averaged in different ways",
    )
    axis.set_xlim(left=0)
    axis.set_ylim(-0.6, len(states) - 0.4)
    axis.legend(loc="best")
    return figure
