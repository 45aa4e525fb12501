"""Supervised fine-tuning on exactly the teacher's tokens."""
