"""The model of learning curves: its features, the prior learnt from worlds, conditioning, and the next training.

arms         features of an arm at a size            prior        what was learnt from worlds (prior.json), pilot facts
curves       conditioning on trainings and facts     acquisition  what each possible training is worth
"""
