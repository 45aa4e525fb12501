"""The planner: from a pilot's run folder to what the budget should buy.

before a pilot    design     how large it should be                guesses    what that is computed from
the pilot         read       a run folder as a Pilot               pilot      what it holds, validated arrays
exact facts       costs      m(K) of every K, on all axes          handback   G(K), what K teacher turns bring
                  reweigh    the pilot under other recipes' laws   offers     what a budget buys of every arm
learning curves   facts      what the pilot says to the model       trainer    small trainings on cuts, kept
                  product    a trainer: fewsteps train, evaluate   (the model itself: analysis/curves)
the plan          planner    from a folder to a plan               report     the plan as a record and as JSON
                  doubts     what to know before believing it      answer     the plan in words and as a table
                  what_if    other prices, horizons, evaluations   purchase   the command lines that buy it
"""
