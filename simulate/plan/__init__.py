"""The planner: from a pilot's run folder to the recipe that the budget should buy.

pilot     what a pilot holds, as validated arrays      read      a run folder as a Pilot
costs     m(K) of every K, on all three axes           handback  G(K), what K teacher turns are worth
marginal  the rule that weighs one against the other   level0    the plan with almost no assumptions
steps     turns as steps of a chain                    classes   contexts that promise the same
hidden    classes fitted to whole episodes             coverage  what n labels teach of a class
chain     the student over classes                     model     all that a prediction needs
predict   pass@1 of every option                       level1    the plan with a model
doubts    what to know before believing a plan         report    the plan as JSON and as a table
planner   from a run folder to a plan
"""
