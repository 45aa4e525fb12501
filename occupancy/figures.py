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

    first = next(iter(occupancies.values()))
    rows = []
    for state in first.most_visited(top, names):
        for convention, law in occupancies.items():
            se = 0.0 if law.standard_error is None else float(law.standard_error[state])
            name = str(names[state] if len(names) else state)
            rows.append((name, convention, float(law.probability[state]), se))
    return pd.DataFrame(rows, columns=["state", "convention", "probability", "se"])


@styled
def conventions_figure(frame: pd.DataFrame) -> Figure:
    """Occupancies of the most visited states, from the frame of `occupancy_frame`."""
    figure, (axis,) = panels(width=6, height=0.9 + 0.32 * frame["state"].nunique())
    states = list(dict.fromkeys(frame["state"]))[::-1]
    names = list(dict.fromkeys(frame["convention"]))
    for shift, look, name in zip(np.linspace(-0.15, 0.15, len(names)), looks(), names, strict=False):
        rows = frame[frame["convention"] == name]
        places = [states.index(state) + shift for state in rows["state"]]
        how = {"fmt": look["marker"], "ms": 5, "color": look["color"], "capsize": 2, "lw": 1}
        axis.errorbar(rows["probability"], places, xerr=rows["se"], label=name, **how)
    axis.set_yticks(range(len(states)), states)
    axis.set_xlabel("fraction of contexts, ± 1 SE clustered by task")
    axis.set_title("The same contexts, averaged in different ways")
    axis.set_xlim(left=0)
    axis.set_ylim(-0.6, len(states) - 0.4)
    axis.legend(loc="best")
    return figure
