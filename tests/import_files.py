"""Small files of other tools, written by hand after each format's documentation."""

import json

import pyarrow as pa
import pyarrow.parquet as pq

MESSAGES = [
    {"role": "system", "content": "You act."},
    {"role": "user", "content": "Find the key."},
    {"role": "assistant", "content": "look", "author": "student"},
    {"role": "user", "content": "A drawer."},
    {"role": "assistant", "content": "open drawer", "author": "teacher"},
    {"role": "tool", "content": "The key."},
]
SHAREGPT = [
    {"from": "human", "value": "Find the key."},
    {"from": "gpt", "value": "look"},
    {"from": "observation", "value": "A drawer."},
    {"from": "gpt", "value": "open drawer"},
]
ATIF = {
    "schema_version": "ATIF-v1.7",
    "session_id": "s",
    "agent": {"name": "a", "version": "1", "model_name": "big"},
    "extra": {"task_id": "key"},
    "steps": [
        {"step_id": 1, "source": "user", "message": [{"type": "text", "text": "Find the key."}]},
        {
            "step_id": 2,
            "source": "agent",
            "message": "look",
            "tool_calls": [{"tool_call_id": "c", "function_name": "go", "arguments": {"to": "drawer"}}],
            "observation": {"results": [{"source_call_id": "c", "content": "A drawer."}]},
            "metrics": {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 2},
        },
        {"step_id": 3, "source": "agent", "message": "(router)", "llm_call_count": 0},
        {"step_id": 4, "source": "agent", "message": "open drawer", "model_name": "small"},
    ],
}
INSPECT = {
    "eval": {"model": "openai/big", "task": "keys"},
    "samples": [
        {"id": "key", "epoch": 2, "messages": MESSAGES[1:], "scores": {"match": {"value": "C"}}},
        {"id": "key", "epoch": 1, "messages": MESSAGES[1:], "limit": {"type": "message", "limit": 4}},
        {"id": "door", "epoch": 1, "messages": MESSAGES[1:3], "error": {"message": "it broke"}},
    ],
}
TRAJ = {
    "trajectory": [
        {"response": "ls", "action": "ls", "observation": "a.py", "thought": ""},
        {"response": "submit", "action": "submit", "observation": ""},
    ],
    "history": [
        {"role": "system", "content": "Fix it."},
        {"role": "assistant", "content": "demonstrated", "is_demo": True},
        {"role": "user", "content": "Issue."},
        {"role": "assistant", "content": "ls"},
    ],
    "info": {"exit_status": "submitted (exit_cost)"},
}


def write(folder, name, content):
    file = folder / name
    if name.endswith(".parquet"):
        pq.write_table(pa.Table.from_pylist(content), file)
    elif isinstance(content, str):
        file.write_text(content)
    else:
        file.write_text(json.dumps(content))
    return file


def lines(records):
    return "".join(json.dumps(record) + "\n" for record in records)


CALL = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"cmd": "ls"}'}}
SAID = {"role": "assistant", "content": "Let me look.", "tool_calls": [CALL]}
USAGE = {"prompt_tokens": 9, "completion_tokens": 4, "prompt_tokens_details": {"cached_tokens": 2}}
TOOL_TURNS = [
    ('Let me look.\n<tool_call>\n{"name": "bash", "arguments": {"cmd": "ls"}}\n</tool_call>', "a.py"),
    ("It is a.py.", ""),
]
"""What every file below says: a call of a tool, its reply, an answer."""
ALPACA = {
    "task_id": "key",
    "instruction": "Add.",
    "input": "2 and 2",
    "output": "4",
    "history": [["Hi", "Hello"]],
}
SWIFT = {"task_id": "key", "system": "Be brief.", "query": "2 and 2?", "response": "4", "history": []}
MINI_1 = {
    "info": {"exit_status": "Submitted", "submission": "diff", "config": {"model": {"model_name": "big"}}},
    "messages": [
        {"role": "system", "content": "Fix it."},
        {"role": "user", "content": "Issue."},
        {"role": "assistant", "content": "```bash\nls\n```", "extra": {"response": {"usage": USAGE}}},
        {"role": "user", "content": "a.py"},
        {"role": "assistant", "content": "```bash\nsubmit\n```"},
        {"role": "user", "content": "diff"},
    ],
    "trajectory_format": "mini-swe-agent-1",
}
MINI_2 = {
    "info": {"exit_status": "LimitsExceeded", "submission": "", "mini_version": "2.0.0"},
    "messages": [
        {"role": "system", "content": "Fix it."},
        {"role": "user", "content": "Issue."},
        {
            **SAID,
            "extra": {
                "response": {"usage": USAGE, "choices": [{"finish_reason": "tool_calls"}]},
                "cost": 0.1,
            },
        },
        {"role": "tool", "tool_call_id": "c", "content": "a.py", "extra": {"returncode": 0}},
        {"role": "assistant", "content": "It is a.py."},
        {"role": "exit", "content": "", "extra": {"exit_status": "LimitsExceeded"}},
    ],
    "trajectory_format": "mini-swe-agent-1.1",
}
MINI_RESPONSES = {
    **MINI_2,
    "messages": [
        {"role": "user", "content": "Issue."},
        {
            "object": "response",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "Let me look."}],
                },
                {"type": "function_call", "name": "bash", "arguments": '{"cmd": "ls"}', "call_id": "c"},
            ],
            "usage": {"input_tokens": 9, "output_tokens": 4, "input_tokens_details": {"cached_tokens": 2}},
        },
        {"type": "function_call_output", "call_id": "c", "output": "a.py"},
        {
            "object": "response",
            "output": [
                {
                    "type": "message",
                    "role": "assistant",
                    "content": [{"type": "output_text", "text": "It is a.py."}],
                }
            ],
        },
    ],
}
CODEX = [
    {"type": "session_meta", "payload": {"id": "key", "cwd": "/", "base_instructions": {"text": "Act."}}},
    {"type": "turn_context", "payload": {"model": "big"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "user",
            "content": [{"type": "input_text", "text": "Which file?"}],
        },
    },
    {"type": "event_msg", "payload": {"type": "user_message", "message": "Which file?"}},
    {"type": "response_item", "payload": {"type": "reasoning", "summary": [], "encrypted_content": "x"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "Let me look."}],
        },
    },
    {
        "type": "response_item",
        "payload": {"type": "function_call", "name": "bash", "arguments": '{"cmd": "ls"}', "call_id": "c"},
    },
    {
        "type": "event_msg",
        "payload": {
            "type": "token_count",
            "info": {"last_token_usage": {"input_tokens": 9, "cached_input_tokens": 2, "output_tokens": 4}},
        },
    },
    {"type": "response_item", "payload": {"type": "function_call_output", "call_id": "c", "output": "a.py"}},
    {
        "type": "response_item",
        "payload": {
            "type": "message",
            "role": "assistant",
            "content": [{"type": "output_text", "text": "It is a.py."}],
        },
    },
]


def _claude(uuid, parent, kind, message, **more):
    return {"uuid": uuid, "parentUuid": parent, "type": kind, "sessionId": "key", "message": message, **more}


def _block(id, *content, **more):
    return {"id": id, "role": "assistant", "model": "big", "content": list(content), **more}


CLAUDE_USAGE = {"input_tokens": 7, "cache_read_input_tokens": 2, "output_tokens": 4}
CLAUDE = [
    {"type": "summary", "summary": "A session", "leafUuid": "e"},
    _claude("a", None, "user", {"role": "user", "content": "Which file?"}),
    _claude("x", "a", "assistant", _block("m0", {"type": "text", "text": "taken back"})),
    _claude("b", "a", "assistant", _block("m1", {"type": "text", "text": "Let me look."})),
    _claude(
        "c",
        "b",
        "assistant",
        _block(
            "m1", {"type": "tool_use", "id": "t", "name": "bash", "input": {"cmd": "ls"}}, usage=CLAUDE_USAGE
        ),
    ),
    _claude(
        "d",
        "c",
        "user",
        {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "t", "content": "a.py"}]},
    ),
    _claude("s", None, "user", {"role": "user", "content": "a subagent's"}, isSidechain=True),
    _claude(
        "e", "d", "assistant", _block("m2", {"type": "text", "text": "It is a.py."}, stop_reason="end_turn")
    ),
]
TAU = [
    {
        "task_id": 3,
        "reward": 1.0,
        "info": {},
        "trial": 2,
        "traj": [
            {"role": "system", "content": "Policy."},
            {"role": "user", "content": "Which file?"},
            SAID,
            {"role": "tool", "tool_call_id": "c", "name": "bash", "content": "a.py"},
            {"role": "assistant", "content": "It is a.py."},
        ],
    }
]
TAU_2 = {
    "info": {"agent_info": {"llm": "big"}},
    "tasks": [],
    "simulations": [
        {
            "id": "s",
            "task_id": "key",
            "trial": 0,
            "termination_reason": "user_stop",
            "reward_info": {"reward": 0.0},
            "messages": [
                {"role": "assistant", "content": "Hello, how can I help?"},
                {"role": "user", "content": "Which file?", "turn_idx": 1},
                {
                    "role": "assistant",
                    "content": "Let me look.",
                    "tool_calls": [
                        {"id": "c", "name": "bash", "arguments": {"cmd": "ls"}, "requestor": "assistant"}
                    ],
                    "usage": {"prompt_tokens": 9, "completion_tokens": 4, "cached_tokens": 2},
                    "cost": 0.1,
                },
                {"role": "tool", "id": "c", "content": "a.py", "requestor": "assistant"},
                {
                    "role": "assistant",
                    "content": "It is a.py.",
                    "usage": {"completion_tokens": 3, "prompt_tokens": 9},
                },
            ],
        }
    ],
}
RESPONSE = {
    "id": "r",
    "model": "big",
    "usage": USAGE,
    "choices": [{"message": SAID, "finish_reason": "tool_calls"}],
}
OPENHANDS = [
    {"id": 0, "source": "agent", "action": "system", "args": {"content": "Act.", "tools": []}},
    {"id": 1, "source": "user", "action": "message", "args": {"content": "Which file?"}},
    {"id": 2, "source": "user", "action": "recall", "args": {}},
    {
        "id": 3,
        "source": "agent",
        "action": "run",
        "args": {"command": "ls", "thought": "Let me look."},
        "tool_call_metadata": {"function_name": "bash", "tool_call_id": "c", "model_response": RESPONSE},
    },
    {"id": 4, "source": "agent", "observation": "run", "content": "a.py", "extras": {}, "cause": 3},
    {"id": 5, "source": "agent", "action": "message", "args": {"content": "It is a.py."}},
]
OPENHANDS_1 = {
    "instance_id": "key",
    "metadata": {"llm": {"model": "big"}},
    "test_result": {"report": {"resolved": True}},
    "history": [
        {
            "kind": "SystemPromptEvent",
            "source": "agent",
            "system_prompt": {"type": "text", "text": "Act."},
            "tools": [],
        },
        {
            "kind": "MessageEvent",
            "source": "user",
            "llm_message": {"role": "user", "content": [{"type": "text", "text": "Which file?"}]},
        },
        {
            "kind": "ActionEvent",
            "source": "agent",
            "thought": [{"type": "text", "text": "Let me look."}],
            "tool_name": "bash",
            "tool_call": {"id": "c", "name": "bash", "arguments": '{"cmd": "ls"}'},
            "llm_response_id": "r",
        },
        {
            "kind": "ObservationEvent",
            "source": "environment",
            "observation": {"kind": "ExecuteBashObservation", "content": [{"type": "text", "text": "a.py"}]},
        },
        {
            "kind": "MessageEvent",
            "source": "agent",
            "llm_message": {"role": "assistant", "content": [{"type": "text", "text": "It is a.py."}]},
        },
    ],
}
COMPLETION = {
    "messages": [
        {"role": "user", "content": [{"type": "text", "text": "Which file?"}]},
        SAID,
        {"role": "tool", "tool_call_id": "c", "content": [{"type": "text", "text": "a.py"}]},
    ],
    "response": {
        "model": "big",
        "usage": USAGE,
        "choices": [{"message": {"role": "assistant", "content": "It is a.py."}, "finish_reason": "stop"}],
    },
    "kwargs": {},
    "cost": 0.1,
}
VERIFIERS = {
    "example_id": 7,
    "prompt": [{"role": "user", "content": "Which file?"}],
    "completion": [
        SAID,
        {"role": "tool", "tool_call_id": "c", "content": "a.py"},
        {"role": "assistant", "content": "It is a.py."},
    ],
    "reward": 0.5,
    "metrics": {},
}
ROLLOUT = {
    "input": "<|im_start|>user\nWhich file?<|im_end|>\n<|im_start|>assistant\n",
    "output": "Let me look.<|im_end|>\n<|im_start|>user\na.py<|im_end|>\n<|im_start|>assistant\nIt is a.py.",
    "score": 1.0,
    "step": 3,
}
