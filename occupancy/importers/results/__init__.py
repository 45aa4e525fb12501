"""Results of evaluation frameworks: trajectories with their tasks and rewards."""
