"""Harbor: our sandbox as its environment, our episodes as its agent, and its environments as ours.

environment.py and agent.py are imported by Harbor, in a Python >= 3.12 of its own. trial.py starts Harbor as
a subprocess and imports nothing of it.
"""
