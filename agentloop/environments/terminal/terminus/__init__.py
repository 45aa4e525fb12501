"""The text protocol of Terminus-2 and its terminal: prompts, parsing, a tmux session, and when it settles."""
