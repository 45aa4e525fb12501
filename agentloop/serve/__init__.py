"""The switching endpoint: Algorithm 1 through a chat-completions server, with a harness that is not ours."""
