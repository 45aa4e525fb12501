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
