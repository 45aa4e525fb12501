"""A run as a data set to publish: checked for licence and secrets, described for people and for machines."""
