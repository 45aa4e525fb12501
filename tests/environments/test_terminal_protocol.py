"""The protocol of Terminus-2: its parser's warnings, repairs and errors, and the recordings of a real one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from terminal_machine import finished, host_image

from agentloop.environments.terminal.episode import Rules, TerminalEpisode
from agentloop.environments.terminal.sandbox.sandbox import Sandbox, open_sandbox
from agentloop.environments.terminal.tasks.dockerfile import Built
from agentloop.environments.terminal.tasks.task import TerminalTask, in_sandbox
from agentloop.environments.terminal.terminus.prompts import Template, load_template
from agentloop.environments.terminal.terminus.protocol import (
    LONGEST_S,
    MOST_BYTES,
    after_commands,
    after_error,
    parse_turn,
    shortened,
    turn_text,
)
from agentloop.environments.terminal.terminus.screen import Screen, last_printed, new_lines, open_screen
from occupancy.record.errors import InputError

HEAD = '{"analysis":"a","plan":"p","commands":'
LS = '[{"keystrokes":"ls\\n","duration":0.1}]'
NEWLINE = (
    "Command 1 should end with newline when followed by another command. Otherwise the two commands will be "
    "concatenated together on the same line."
)
PLEASE = " - please fix this in future responses"
ADDED = f"AUTO-CORRECTED: Fixed incomplete JSON by adding missing closing brace{PLEASE}"
FOUND = f"AUTO-CORRECTED: Extracted JSON from mixed content{PLEASE}"


@pytest.mark.parametrize(
    ("text", "error", "warnings"),
    [
        (HEAD + LS + "}", "", []),
        ("I will.", "No valid JSON found in response", ["No valid JSON object found"]),
        ("", "No valid JSON found in response", ["No valid JSON object found"]),
        ("Sure\n" + HEAD + LS + "}", "", ["Extra text detected before JSON object"]),
        (HEAD + LS + "} ok", "", ["Extra text detected after JSON object"]),
        (HEAD + LS, "", [ADDED]),
        (HEAD + '[{"keystrokes":"ls\\n"', "No valid JSON found in response", ["No valid JSON object found"]),
        ('{"plan":"p"}', "Missing required fields: analysis, commands", []),
        (HEAD + "7}", "Field 'commands' must be an array", []),
        (HEAD + "[7]}", "Command 1 must be an object", []),
        (HEAD + '[{"duration":1}]}', "Command 1 missing required 'keystrokes' field", []),
        (HEAD + '[{"keystrokes":7,"duration":1}]}', "Command 1 'keystrokes' must be a string", []),
        (
            HEAD + '[{"keystrokes":"ls\\n"}]}',
            "",
            ["Command 1: Missing duration field, using default 1.0"],
        ),
        (
            HEAD + '[{"keystrokes":"ls\\n","duration":"1"}]}',
            "",
            ["Command 1: Invalid duration value, using default 1.0"],
        ),
        (
            HEAD + '[{"keystrokes":"a","duration":1,"x":1},{"keystrokes":"b","duration":1}]}',
            "",
            ["Command 1: Unknown fields: x", NEWLINE],
        ),
        (
            '{"plan":"p","analysis":"a","commands":[]}',
            "",
            [
                "Fields appear in wrong order. Found: plan → analysis → commands, "
                "expected: analysis → plan → commands"
            ],
        ),
        ('{"analysis":1,"plan":"p","commands":[]}', "", ["Field 'analysis' should be a string"]),
        (
            HEAD + '[],"task_complete":3}',
            "",
            ["Field 'task_complete' should be a boolean or string"],
        ),
        (
            HEAD + '[{"duration":1}],"task_complete":true}',
            "",
            ["Command 1 missing required 'keystrokes' field"],
        ),
        ('see {a} then {"analysis":"a","plan":"p","commands":[]}', "", [FOUND]),
    ],
)
def test_what_is_wrong_is_told(text: str, error: str, warnings: list[str]) -> None:
    parsed = parse_turn(text)
    assert parsed.error == error
    assert list(parsed.warnings) == warnings
    assert parsed.status == ("invalid" if error else "warnings" if warnings else "ok")


def test_reasoning_in_the_text_is_left_out() -> None:
    turn = turn_text("a", "p", [("awk '{print $1}' f\n", 1.0)])
    assert parse_turn(f"<think>awk '{{print $1}}' would do</think>\n{turn}") == parse_turn(turn)
    assert parse_turn(f"<think>{turn}</think>").commands == parse_turn(turn).commands
    dream = turn_text("then", "p", [("exit\n", 1.0)])
    assert parse_turn(f"{turn}\n<think>and then</think>\n{dream}").commands == parse_turn(turn).commands
    (typed,) = parse_turn(turn_text("a", "p", [("echo '</think>'\n", 1.0)])).commands
    assert typed.keystrokes == "echo '</think>'\n"


def test_invalid_json_is_quoted() -> None:
    short = parse_turn(HEAD + "[,]}")
    assert short.error.startswith("Invalid JSON: ")
    assert short.error.endswith(f" | Content: {HEAD + '[,]}'!r}")
    long = parse_turn('{"analysis":' + "a" * 300 + "}")
    assert f" | Content preview: {('{' + chr(34) + 'analysis' + chr(34) + ':' + 'a' * 88)!r}..." in long.error


def test_complete_and_durations() -> None:
    assert parse_turn(HEAD + '[],"task_complete":"Yes"}').complete
    assert not parse_turn(HEAD + '[],"task_complete":"no"}').complete
    assert not parse_turn(HEAD + "[]}").complete
    assert parse_turn(HEAD + '[{"duration":1}],"task_complete":true}').complete
    for given_s, waited in (
        (600, LONGEST_S),
        (-1, 0.0),
        ("NaN", 1.0),
        ("Infinity", LONGEST_S),
        ("true", 1.0),
    ):
        (command,) = parse_turn(HEAD + f'[{{"keystrokes":"a","duration":{given_s}}}]}}').commands
        assert command.duration_s == waited


@given(st.text())
def test_any_text_is_an_answer(text: str) -> None:
    parsed = parse_turn(text)
    assert parsed.error or isinstance(parsed.commands, tuple)


@given(st.text(), st.lists(st.tuples(st.text(), st.floats(0, 60))), st.booleans())
def test_what_policies_write_is_read_back(
    words: str, commands: list[tuple[str, float]], complete: bool
) -> None:
    parsed = parse_turn(turn_text(words, words, commands, complete=complete))
    assert not parsed.error
    assert [(c.keystrokes, c.duration_s) for c in parsed.commands] == commands
    assert parsed.complete == complete


def test_deep_nesting_is_an_error_and_no_crash() -> None:
    assert parse_turn('{"a":' * 100_000 + "1" + "}" * 100_000).error


def test_numbers_and_halves_of_characters_that_python_refuses_are_no_crash() -> None:
    assert parse_turn(HEAD + f'[{{"keystrokes":"a","duration":{"9" * 5000}}}]}}').error.startswith(
        "Invalid JSON"
    )
    (command,) = parse_turn(HEAD + r'[{"keystrokes":"echo \ud83d\n","duration":1}]}').commands
    assert command.keystrokes == "echo \\ud83d\n"


def test_long_outputs_keep_both_ends() -> None:
    assert shortened("x" * MOST_BYTES) == "x" * MOST_BYTES
    cut = shortened("a" * 6000 + "é" * 6000)
    head, told, tail = cut.split("\n")
    assert head == "a" * 5000
    assert told == "[... output limited to 10000 bytes; 8000 interior bytes omitted ...]"
    assert tail == "é" * 2500


def test_new_lines_start_at_the_last_known_line() -> None:
    assert new_lines("$\n\n", "$ ls\na\n$\n") == "$ ls\na\n$\n"
    assert new_lines("$ ls\na\n$\n\n", "$ ls\na\n$ pwd\n/\n$\n") == "\n$ pwd\n/\n$\n"
    assert new_lines("gone", "something else") is None


def test_the_last_output_is_found_in_the_raw_text() -> None:
    prompt, read = b"\x1b[?2004h", b"\x1b[?2004l"
    log = (
        prompt
        + b"$ ls\r\n"
        + read
        + b"\ra\r\n"
        + prompt
        + b"$ tput\r\n"
        + read
        + b"\r\x1b[31mred\x1b[0m\r\nx"
    )
    assert last_printed(log) == "red\nx"
    assert last_printed(log + prompt + b"root@sandbox:/# ") == "red\nx"
    late = log + b"\r\n" + prompt + b"root@sandbox:/app# late\r\n"
    assert last_printed(late) == "red\nx\nlate\n"
    assert last_printed(prompt + b"$ ") is None


def test_templates_have_two_places(tmp_path: Path) -> None:
    assert "DO IT" in load_template().fill("DO IT", "$")
    for text in ("{instruction}", "{instruction} {terminal_state} {x}", "{", "{instruction} {terminal_state"):
        (tmp_path / "t").write_text(text)
        with pytest.raises(InputError, match="expected"):
            load_template(tmp_path / "t")
    with pytest.raises(InputError, match="No such file"):
        load_template(tmp_path / "none")


def golden(data_dir: Path) -> tuple[str, list[str], list[str]]:
    """First prompt, the model's turns, and what it read after each, of the recorded Terminus-2."""
    folder = data_dir / "terminal" / "terminus2_golden"
    requests = [
        json.loads(line) for line in (folder / "terminus2_llm_requests.jsonl").read_text().splitlines()
    ]
    messages = [message["content"] for message in requests[-1]["messages"]]
    steps = json.loads((folder / "atif_v1.8_trajectory.json").read_text())["steps"]
    calls = [call["arguments"] for call in steps[-1]["tool_calls"] if call["function_name"] == "bash_command"]
    last = json.dumps({"analysis": "a", "plan": "p", "commands": calls, "task_complete": True})
    end: str = steps[-1]["observation"]["results"][0]["content"]
    return messages[0], [*messages[1::2], last], [*messages[2::2], end]


async def at_app() -> Built:
    return Built(host_image().layers, "/app")


async def never(sandbox: Sandbox, screen: Screen) -> float:
    return 0.5


def test_the_recorded_session_is_reproduced_byte_for_byte(data_dir: Path) -> None:
    prompt, turns, observations = golden(data_dir)
    instruction, state = prompt.split("Task Description:\n")[1].split("\n\nCurrent terminal state:\n")
    assert state.count("\n") == 42
    state = state[:-1]  # the template ends with a line break of its own
    raw = prompt.replace("{", "{{").replace("}", "}}")
    template = Template(raw.replace(instruction, "{instruction}").replace(state, "{terminal_state}"))
    task = TerminalTask(instruction, in_sandbox(at_app, never))

    async def play() -> None:
        episode = TerminalEpisode(task, Rules(20, "settled", template))
        try:
            first = await episode.reset(0)
            assert episode.prompt(first)[0].content == prompt
            for turn, observation in zip(turns, observations, strict=True):
                reply = await episode.step(turn)
                assert reply.observation == observation
            assert (reply.done, reply.reward) == (True, 0.5)
        finally:
            await episode.close()

    finished(play)


@pytest.mark.parametrize("size", [20_000, 200_000])
def test_long_keys_are_pasted_whole(size: int) -> None:
    text = "".join(f"{number:06d} é\n" for number in range(size // 10))

    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            await screen.type(f"cat > /long <<'END'\n{text}END\n", 0)
            assert (await sandbox.run("cat /long")).output.decode() == text

    finished(play)


def test_a_semicolon_at_the_end_is_typed() -> None:
    """tmux takes one at the end of an argument as the end of its own command."""
    lines = {
        "find /etc -name shells -exec echo {} \\;\n": "/etc/shells\n",
        "echo a;\n": "a\n",
        r"echo 'b\\;'; echo ';'": r"b\\;" + "\n;\n",
    }

    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            for keys, printed in lines.items():
                whole, _, _ = keys.partition("\n")
                for part in (keys,) if keys != whole else (f"{keys};", "\n"):
                    await screen.type(part, 0)
                assert await screen.last_output() == printed, keys

    finished(play)


def test_a_line_that_is_a_keys_name_is_typed() -> None:
    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            for line in ("cat > /made <<END", "0x41", "^A up", "C-c", "END", "cat /made"):
                await screen.type(f"{line}\n", 0)
            assert await screen.last_output() == "0x41\n^A up\nC-c\n"

    finished(play)


def test_several_lines_are_read_before_the_next_keys_are_typed() -> None:
    """The shell shows its prompt after each of them: a prompt alone does not say that all are read."""
    lines = {
        "cat > /made.py <<'EOF'\nfor i in range(2):\n    print(i, 'é🙂;')\nEOF\n": "",
        "python3 /made.py\n": "0 é🙂;\n1 é🙂;\n",
        "cd /tmp\n\npwd\n": "/tmp\n",
        "python3 - <<'END'\nprint(7)\nEND\n": "7\n",
        "if true; then\nsleep 0.2; echo yes;\nfi\n": "yes\n",
        "echo one\n\n": "one\n",
    }

    async def play() -> None:
        async with open_sandbox(host_image().layers) as sandbox:
            screen = await open_screen(sandbox)
            for keys in lines:
                await screen.type(keys, 0)
                assert "> " not in ((await screen.output()) or "").rstrip().rpartition("\n")[2], keys
            for keys, printed in lines.items():
                await screen.type(keys, 0)
                if not keys.endswith("\n\n"):
                    assert await screen.last_output() == printed, keys
            assert (await sandbox.run("python3 /made.py")).output.decode() == lines["python3 /made.py\n"]

    finished(play)


def test_the_texts_around_an_observation(data_dir: Path) -> None:
    _, turns, observations = golden(data_dir)
    assert after_error(parse_turn(turns[0])) == observations[0]
    confirm = after_commands(parse_turn(turns[4]), "New Terminal Output:\n\nroot@sandbox:/app#\n")
    assert confirm == observations[4]
