"""The model of learning curves: its features, the prior learnt from worlds, conditioning, the next training.

arms         what is compared, and the features of an arm at a size
evidence     small trainings as observations
prior        what was learnt from worlds (prior.json), and the facts of a pilot
curves       conditioning on trainings and facts
draws        joint draws of pass@1, bands, P(best), expected loss
acquisition  what each possible training is worth, and the next one
"""
