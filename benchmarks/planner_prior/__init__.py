"""How `analysis/curves/prior.json` was made: worlds of 17 families are played, learnt from, and judged.

families    worlds of ten families (dialogues, places, programs; making: what they share)
laboratory  worlds of the laboratory's families whose student is a table
cuts        small data sets cut from a pilot, and students trained on them
generate    one JSON file a world
learn       prior.json from these files
chosen      what contexts chosen after the rollout add, for the prior too
designs     stored trainings with the noise of an evaluation
judge       regret, bands and rounds with families left out
"""
