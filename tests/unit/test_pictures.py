"""The moving pictures of the documents are those that the tool draws."""

import runpy
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).resolve().parents[2]


def test_pictures_of_the_documents_are_up_to_date():
    pictures = runpy.run_path(str(ROOT / "tools" / "pictures.py"))["pictures"]()
    for name, text in pictures.items():
        assert (ROOT / "docs" / name).read_text() == f"{text}\n", "run tools/pictures.py"
        ElementTree.fromstring(text)
