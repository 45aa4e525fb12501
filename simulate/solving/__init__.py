"""What is exactly true of a world: values, occupancies, hand-backs and laws of recipes."""
