"""The page in a browser, with no network."""

import json
import re
import shutil
import subprocess

import pytest

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chrome"))), None)
# Chooses a class and lets go of it again, and says what it sees.
ASK = """<script>
const failed = [];
addEventListener('error', event => failed.push(String(event.message)), true);
addEventListener('load', () => {
  const map = document.querySelector('.map'), button = document.querySelector('.legend button');
  const opacity = () => [...map.querySelectorAll('g')].map(g => +getComputedStyle(g).opacity);
  const said = {failed, images: [...document.images].map(image => image.naturalWidth)};
  said.shown = [...document.images].map(image => image.clientWidth);
  button.click();
  said.chosen = opacity();
  button.click();
  said.all = opacity();
  said.title = document.querySelector('circle title').textContent;
  said.wide = document.documentElement.scrollWidth;
  said.window = innerWidth;
  const answer = document.createElement('pre');
  answer.id = 'answer';
  answer.textContent = JSON.stringify(said);
  document.body.append(answer);
});
</script>"""


@pytest.mark.skipif(BROWSER is None, reason="needs chromium or chrome")
@pytest.mark.parametrize("width", [1200, 500])
def test_the_page_opens_without_a_network(width, page, tmp_path):
    asking = tmp_path / "asking.html"
    html = (page / "visualize.html").read_text(encoding="utf-8")
    asking.write_text(html.replace("<meta charset='utf-8'>", f"<meta charset='utf-8'>{ASK}"))
    command = [
        BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--dump-dom",
        "--enable-logging=stderr", f"--user-data-dir={tmp_path / 'browser'}",
        "--host-resolver-rules=MAP * ~NOTFOUND", f"--window-size={width},2000", asking.as_uri(),
    ]  # fmt: skip
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert "CONSOLE" not in done.stderr
    said = json.loads(re.search(r"<pre id=\"answer\">(.*?)</pre>", done.stdout)[1])
    assert said["failed"] == []
    assert len(said["images"]) == 3 and min(said["images"]) > 300
    assert min(said["shown"]) > 600  # on a narrow page they scroll
    assert said["chosen"][0] == 1 and max(said["chosen"][1:]) < 0.1
    assert set(said["all"]) == {1}
    assert re.fullmatch(r"\d: image \d+", said["title"])
    assert said["wide"] <= said["window"] <= width
