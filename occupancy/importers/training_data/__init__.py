"""Training data: records of messages as trainers read them."""
