"""The model of learning curves: its features, the prior learnt from worlds, conditioning, the next training.

arms         features of an arm at a size
prior        what was learnt from worlds (prior.json), and the facts of a pilot
curves       conditioning on trainings and facts
acquisition  what each possible training is worth
"""
