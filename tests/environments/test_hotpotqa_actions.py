"""From the text of a turn to its action, hostile text included."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agentloop.environments.hotpotqa.actions import Action, parse_action, write_turn

TAGS = [
    ("<think>x</think>\n<search> who is it </search>", Action("search", "who is it")),
    (
        "<think>an <answer>a</answer> or a <search>b</search></think>\n<search>q</search>",
        Action("search", "q"),
    ),
    ("so</think><think>an <answer>a</answer></think><answer>b</answer>", Action("answer", "b")),
    # A turn that goes on with a dream of the next ones has played its first.
    (
        "<think>x</think><search>q</search><think>y</think><answer>a</answer>",
        Action("search", "q", "trailing_text"),
    ),
    ("<answer>a</answer><think>y</think><answer>b</answer>", Action("answer", "a", "trailing_text")),
    ("<answer>\n Paris \n</answer>", Action("answer", "Paris")),
    ("<search>a\nb</search>", Action("search", "a\nb")),
    # The first action counts, and what follows it does not.
    ("<search>a</search> and then <search>b</search>", Action("search", "a", "trailing_text")),
    ("<answer>a</answer> <search>q</search>", Action("answer", "a", "trailing_text")),
    ("<search>q</search><information>my own</information>", Action("search", "q", "trailing_text")),
    # Search-R1 cuts behind the first </search>, before it looks for an answer.
    ("<answer>a <search>q</search> b</answer>", Action("search", "q", "trailing_text")),
    ("<search>q </answer> r</search>", Action("search", "q </answer> r")),
    ("<search><answer>x</answer></search>", Action("search", "<answer>x</answer>")),
    ("<answer></answer>", Action("answer", "")),
    ("<search>  </search>", Action("none", status="empty_query")),
    ("I know it: Paris", Action("none", status="no_action")),
    ("", Action("none", status="no_action")),
    ("<search>q", Action("none", status="unclosed")),
    ("</search>q<search>", Action("none", status="no_action")),
    ("<Search>q</Search>", Action("none", status="no_action")),
    (
        '<tool_call>{"name": "search", "arguments": {"query": "q"}}</tool_call>',
        Action("none", status="unclosed"),
    ),
]
TOOLS = [
    ('<tool_call>\n{"name": "search", "arguments": {"query": " q "}}\n</tool_call>', Action("search", "q")),
    ('<tool_call>{"name":"search","arguments":"{\\"query\\": \\"q\\"}"}</tool_call>', Action("search", "q")),
    ("<think>so</think><answer>yes</answer>", Action("answer", "yes")),
    ('<tool_call>{"name": "search", "arguments": {"query": "q"}', Action("none", status="unclosed")),
    ("<tool_call>{'name': 'search'}</tool_call>", Action("none", status="bad_json")),
    ("<tool_call>[1]</tool_call>", Action("none", status="bad_json")),
    (f"<tool_call>{'[' * 100_000}</tool_call>", Action("none", status="bad_json")),
    ('<tool_call>{"name": "browse", "arguments": {}}</tool_call>', Action("none", status="unknown_tool")),
    (
        '<tool_call>{"name": "search", "arguments": {"query": 7}}</tool_call>',
        Action("none", status="bad_arguments"),
    ),
    ('<tool_call>{"name": "search", "arguments": "{"}</tool_call>', Action("none", status="bad_arguments")),
    ('<tool_call>{"name": "search"}</tool_call>', Action("none", status="bad_arguments")),
    (
        '<tool_call>{"name": "search", "arguments": {"query": ""}}</tool_call>',
        Action("none", status="empty_query"),
    ),
    ("<search>q</search>", Action("none", status="unclosed")),
]
PLAIN = st.text(st.characters(exclude_characters="<>", exclude_categories=("Cs",)), min_size=1).filter(
    str.strip
)


@pytest.mark.parametrize(("text", "expected"), TAGS)
def test_tags(text: str, expected: Action) -> None:
    assert parse_action(text, format="tags") == expected


@pytest.mark.parametrize(("text", "expected"), TOOLS)
def test_tools(text: str, expected: Action) -> None:
    assert parse_action(text, format="tools") == expected


@given(st.text(), st.sampled_from(["tags", "tools"]))
def test_any_text_is_an_action_or_says_why_not(text: str, format: str) -> None:
    action = parse_action(text, format=format)
    assert action.kind in ("search", "answer") or action.status != "ok"


@given(PLAIN, st.sampled_from(["search", "answer"]), st.sampled_from(["tags", "tools"]))
def test_what_is_written_is_read_back(content: str, kind: str, format: str) -> None:
    text = write_turn("so I do it", kind, content, format=format)
    assert parse_action(text, format=format) == Action(kind, content.strip())


@given(PLAIN, st.text())
def test_what_follows_an_answer_changes_nothing_but_the_status(answer: str, tail: str) -> None:
    alone = parse_action(f"<answer>{answer}</answer>", format="tags")
    followed = parse_action(f"<answer>{answer}</answer>{tail}", format="tags")
    assert (followed.kind, followed.content) == (alone.kind, alone.content)
