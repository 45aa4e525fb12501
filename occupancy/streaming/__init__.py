"""The same estimates over tables of turns that are larger than memory."""
