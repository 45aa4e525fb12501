"""What a run of whole continuations would have been under another recipe, K or budget."""
