import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[3] / "docs" / "design" / "language.md"
BLOCKS = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)


@pytest.mark.parametrize("number", range(len(BLOCKS)))
def test_the_pages_code_runs(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = tmp_path / "block.py"
    source.write_text(BLOCKS[number])
    exec(compile(BLOCKS[number], str(source), "exec"), {})
