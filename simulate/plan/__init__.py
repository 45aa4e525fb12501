"""The planner: from a pilot's run folder to the recipe that the budget should buy.

pilot     what a pilot holds, as validated arrays      read      a run folder as a Pilot
costs     m(K) of every K, on all three axes           handback  G(K), what K teacher turns are worth
marginal  the rule that weighs one against the other   level0    the plan with almost no assumptions
report    the plan as JSON and as a table
"""
