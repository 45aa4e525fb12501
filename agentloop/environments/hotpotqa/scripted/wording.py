"""Sentences of the scripted policies: many ways to say the same thing."""

from __future__ import annotations

import random

from ..observation import harmless

Ways = tuple[str, ...]

BEGIN: Ways = (
    "I should find out about {title} first.",
    "The question turns on {title}, so that is where I start.",
    "Let me begin with {title}.",
    "I do not know this by heart. A passage on {title} should help.",
    "First step: look up {title}.",
    "To answer this I need facts, and {title} is the first thing to check.",
)
READ: Ways = (
    "The passage on {title} says: {fact}",
    "I have found {title}. It reads: {fact}",
    "Now I know about {title}: {fact}",
    "Good, {title} is there. What matters is this: {fact}",
    "{title} gives one part: {fact}",
    "According to the passage on {title}, {fact}",
)
NEXT: Ways = (
    "What is still open is {title}.",
    "That leads me to {title}, which I look up next.",
    "The other half depends on {title}.",
    "So the next thing to read is {title}.",
    "I still need {title} before I can answer.",
    "This points to {title}. I will search for it.",
)
NOTHING_NEW: Ways = (
    "That search did not bring what I need.",
    "None of these passages is the right one.",
    "These passages do not settle it, so I try other words.",
    "Not helpful yet. A more exact query may do better.",
    "The last turn brought nothing new.",
)
NO_ACTION: Ways = (
    "My last turn had no action in it, so it was lost.",
    "I have to write a proper query this time.",
    "The last turn was not understood. I will be careful with the form.",
)
ANSWER: Ways = (
    "With that the question is answered: {answer}.",
    "Both parts are there now. The answer is {answer}.",
    "Putting this together, I get {answer}.",
    "So it is {answer}.",
    "That is all I need. My answer: {answer}.",
    "The passages agree on {answer}.",
)
COMPARED: Ways = (
    "Comparing the two, the answer is {answer}.",
    "I have read about both of them now: {answer}.",
    "Set side by side, that makes {answer}.",
    "Both have been looked up, and the answer is {answer}.",
)
GUESS: Ways = (
    "I could not find everything, and this is my last turn. My best guess is {answer}.",
    "There is no turn left to search in. I settle for {answer}.",
    "The evidence is thin, but {answer} seems most likely.",
)
PLAIN: Ways = (
    "I will search for this.",
    "Let me look it up.",
    "I need to search.",
    "I should look for more.",
    "Maybe a search helps.",
)
SURE: Ways = (
    "I think it is {answer}.",
    "The answer should be {answer}.",
    "It must be {answer}.",
    "That is enough. {answer}.",
)
MALFORMED: dict[str, Ways] = {
    "tags": (
        "<think>I will look for it.</think>\nsearch: {query}",
        "<think>Let me search.</think>\n<search>{query}",
        "I should search for {query} and then answer.",
        "<think>I have to find {query}.",
        "<think>Let me look.</think>\n<query>{query}</query>",
    ),
    "tools": (
        "<think>I will look for it.</think>\nsearch({query})",
        '<think>Let me see.</think>\n<tool_call>\n{{"name": "search", "arguments": {query}}}\n</tool_call>',
        '<think>Let me look.</think>\n<tool_call>\n{{"name": "lookup", "arguments": {{}}}}\n</tool_call>',
        "I should search for {query} and then answer.",
        "<think>I have to find {query}.",
    ),
}


def say(rng: random.Random, ways: Ways, **parts: str) -> str:
    """One of these ways to say it."""
    return rng.choice(ways).format(**{name: harmless(part) for name, part in parts.items()})


def shortened(sentence: str) -> str:
    """A sentence of at most 40 words, with an end."""
    words = sentence.split()
    if len(words) > 40:
        return " ".join(words[:40]) + " …"
    return " ".join(words) + ("" if sentence.endswith((".", "!", "?", '"')) else ".")
