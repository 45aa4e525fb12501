"""Runs in other tools' formats; each says in its own way that only the teacher's turns are trained on."""
