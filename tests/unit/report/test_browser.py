"""The report in a browser, at the widths of a desktop and of a telephone."""

import json
import re
import shutil
import subprocess
from html import unescape

import pytest

import outgrid as og
from outgrid.cli import main

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
ASK = """<script>
const images = [...document.images].map(image => image.naturalWidth);
document.documentElement.dataset.seen = JSON.stringify({
  wide: document.documentElement.scrollWidth, window: innerWidth, images: images,
  moving: document.getAnimations().length});
</script></body>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    problem = og.Problem("heat7", (40, 36, 64), steps=9, initial={"u": "x"}, parameters={"k": 0.1})
    og.run(problem, memory="128MiB", tier="direct", out=folder / "heat.run")
    process = {"state": "running", "time": "", "started": "", "host": "", "pid": 1}
    lines = (json.dumps(process | {"seconds": float(n), "memory_limit_bytes": 9}) for n in range(9))
    (folder / "heat.run" / "progress.jsonl").write_text("\n".join(lines))
    assert main(["report", str(folder / "heat.run")]) == 0
    return folder / "heat.run" / "report" / "report.html"


def test_the_report_needs_no_other_file_and_opens_with_the_answer(page):
    text = page.read_text()
    assert not re.search(r"""(src|href)=['"](?!data:)|url\((?!#)|@import|<script""", text)
    body = text.partition("<body>")[2]
    places = [body.index(word) for word in ("<img", "GLUP/s", "memory limit", "<h2>How a sweep")]
    assert places == sorted(places)
    assert body.count("<polyline") == 5


@pytest.mark.skipif(not CHROMIUM, reason="chromium is not installed")
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_it_whole(page, width, tmp_path):
    asked = tmp_path / "asked.html"
    asked.write_text(page.read_text().replace("</body>", ASK))
    done = subprocess.run(
        [
            *(CHROMIUM, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"),
            *(f"--window-size={width},900", f"--user-data-dir={tmp_path}", "--dump-dom"),
            f"file://{asked}",
        ],
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    (told,) = re.findall(r'data-seen="([^"]*)"', done.stdout)
    seen = json.loads(unescape(told))
    assert seen["wide"] <= seen["window"] <= max(width, 500)
    assert all(seen["images"])
    assert seen["images"]
    assert seen["moving"]
