"""HotpotQA as a search agent: think, search Wikipedia paragraphs, answer, in at most five turns."""
