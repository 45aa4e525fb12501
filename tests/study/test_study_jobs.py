"""Jobs of a study travel as JSON and refuse what cannot be done."""

import json
from pathlib import Path

import pytest

from analysis.study.jobs import Collect, Equipment, Student, Train, from_json, to_json
from occupancy.record.errors import InputError
from occupancy.record.recipe import preset

OUT = Path("out")
JOBS = [
    Train((Path("a"), Path("b")), 3, OUT, {"epochs": 2}),
    Student((Path("a"),), 1, OUT, "valid_seen", keep=True),
    Collect(preset("op-short", K=2), Path("pi_1"), "expert", "train:5", 300, 0, OUT),
    Collect(preset("pure-bc"), "expert", "expert", "train:5", None, 0, OUT, {"wall_s": 3.0}),
]


@pytest.mark.parametrize("job", JOBS, ids=lambda job: type(job).__name__)
def test_a_job_is_the_same_after_a_journey_as_json(job):
    assert from_json(json.loads(json.dumps(to_json(job)))) == job


def test_equipment_is_the_same_after_a_journey_as_json():
    given = Equipment("base", "alfworld", "alfworld", {"grammar": "new"}, sampling={"max_tokens": 48})
    assert Equipment(**json.loads(json.dumps(to_json(given)))) == given


def test_what_cannot_be_done_is_refused():
    with pytest.raises(InputError, match="no run folder"):
        Train((), 0, OUT)
    with pytest.raises(InputError, match="seed is a field"):
        Student((OUT,), 0, OUT, "valid_seen", settings={"seed": 1})
    with pytest.raises(InputError, match="attempts=0: expected a whole number"):
        Student((OUT,), 0, OUT, "valid_seen", attempts=0)
    with pytest.raises(InputError, match="engine='llama': expected one of vllm, transformers"):
        Equipment("base", "alfworld", "alfworld", engine="llama")
    with pytest.raises(InputError, match="kind 'dance': expected one of train"):
        from_json({"kind": "dance"})
