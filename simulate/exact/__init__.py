"""What is exactly true of a world, by dynamic programming, and by sampling where that is too large."""
