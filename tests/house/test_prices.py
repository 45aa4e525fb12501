"""One price table for `collect`, `ledger` and `plan`; what no table can hold is one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from agentloop.commands.arguments import read_text
from agentloop.environments.task_specs import read_ids
from analysis.plan.costs import Prices
from occupancy.record.errors import InputError
from occupancy.record.prices import Price, read_prices

TABLE = """
currency = "EUR"
context = 0.5
[models.expert]
input = 2.50
output = 10
[models."openai:*"]
input = 1
cached_input = 0.000001
output = 3
"""


def written(tmp_path: Path, text: str | bytes) -> Path:
    file = tmp_path / "prices.toml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return file


def test_one_file_prices_the_ledger_exactly_and_the_plan(tmp_path: Path) -> None:
    file = written(tmp_path, TABLE)
    table = read_prices(file)
    assert table.find("expert") == Price(2_500_000, 2_500_000, 10_000_000)
    assert table.find("openai:m") == Price(1_000_000, 1, 3_000_000)
    assert (table.currency, table.context) == ("EUR", 5 * 10**11)
    assert Prices.from_toml(file, teacher="expert") == Prices(10.0, 2.5, 2.5, 0.5)


def test_a_file_of_one_price_is_a_table_for_every_model(tmp_path: Path) -> None:
    file = written(tmp_path, "output = 10\nprompt = 2\ncached = 0.2\ncontext = 0.01")
    assert read_prices(file).find("anything") == Price(2_000_000, 200_000, 10_000_000)
    assert Prices.from_toml(file) == Prices(10.0, 2.0, 0.2, 0.01)


def test_a_byte_order_mark_is_no_part_of_a_file(tmp_path: Path) -> None:
    """Notepad and PowerShell write one before the text."""
    file = written(tmp_path, b"\xef\xbb\xbfoutput = 10")
    assert read_prices(file).find("anything").output == 10_000_000
    file.write_bytes(b"\xef\xbb\xbfseeds/9\r\nseeds/0\r\n")
    assert read_ids(file) == ["seeds/9", "seeds/0"]
    assert read_text("--switch-prompt", str(file)).startswith("seeds/9")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (b"\xff", "cannot be read"),
        ("=", "cannot be read"),
        ("", "missing entry 'output'"),
        ("output = nan", "expected a number of at least 0"),
        ("output = inf", "expected a number of at least 0"),
        ("output = -1", "expected a number of at least 0"),
        ("output = 1e26", "expected a number of at least 0"),
        ("output = true", "expected a number of at least 0"),
        ('output = "1"', "expected a number of at least 0"),
        ("output = 1\ntea = 2", "'tea'"),
        ("models = 3", "models without names"),
        ("context = nan\n[models.m]\ninput = 1\noutput = 1", "context = NaN"),
        ("[models.m]\ninput = 1", "expected input, output"),
        ("[models.m]\ninput = 1\noutput = 1\nprompt = 2", "expected input, output"),
        ("[models.m]\ninput = 1\noutput = nan", "m.output = NaN"),
    ],
)
def test_what_is_no_price_table_is_one_line(tmp_path: Path, text: str | bytes, told: str) -> None:
    with pytest.raises(InputError) as refused:
        read_prices(written(tmp_path, text))
    assert told in str(refused.value)
    assert "\n" not in str(refused.value)


def test_a_teacher_without_a_price_is_named(tmp_path: Path) -> None:
    table = read_prices(written(tmp_path, TABLE))
    with pytest.raises(InputError, match=r'expert, openai:\*, not \'other\': add \[models."other"\]'):
        table.find("other")
    with pytest.raises(InputError, match="no policy was named"):
        table.find()
