"""The planner: from a pilot's run folder to the recipe that the budget should buy.

before a pilot     design    how large it should be               guesses    what that is reckoned from
reading one        read      a run folder as a Pilot              pilot      what it holds, validated arrays
                   steps     turns as steps of a chain            horizon    the same with a shorter T_max
                   reading   by what contexts are told apart      lengths    how long training rows are
without a model    costs     m(K) of every K, on all three axes   handback   G(K), what K teacher turns bring
                   reweigh   the pilot under other recipes' laws
                   marginal  one weighed against the other        level0     the plan from these alone
with a model       classes   contexts that promise the same       hidden     classes fitted to whole episodes
                   signs     of a context that no teacher met     chain      moves between classes
                   coverage  how often contexts come again        filling    contexts of a class, unseen too
                   imagined  worlds that could have left it       imagined_places  as kernels read them
                   imagined_exact  their laws                     imagined_purchases  recipes in them
                   model     all that a prediction needs          predict    pass@1 of every option
                   level1    the plan with a model
calibration        trainings training runs, read                  trained    what the model expects of them
                   calibrate the learning curve's posterior
what to make of it doubts    what to know before believing it     evsi, larger  what a larger pilot is worth
                   what_if   other prices, horizons, evaluations  report     the plan as JSON and as a table
                   purchase  the command lines that buy it
all of it          planner   from a run folder to a plan
"""
