"""docs/formats.md says what occupancy/record/tables.py says."""

from __future__ import annotations

from pathlib import Path

from formats_page import document

FILE = Path(__file__).parents[2] / "docs" / "formats.md"


def test_formats_document_is_made_from_the_tables() -> None:
    assert FILE.read_text("utf-8") == document(), "run: python tests/formats_page.py > docs/formats.md"
