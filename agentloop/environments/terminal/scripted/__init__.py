"""A scripted student that errs and a scripted teacher, so that terminal tasks run without a model."""
