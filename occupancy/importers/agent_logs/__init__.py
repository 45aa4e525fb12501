"""What coding agents write down while they work: sessions and trajectories."""
