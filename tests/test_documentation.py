"""What tests/README.md says of the tests."""

import re

from tests.helpers import ROOT

NAMED = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", (ROOT / "tests/README.md").read_text("utf-8"))


def test_every_test_that_is_named_is_there():
    assert len(NAMED) > 80
    for file, test in NAMED:
        text = (ROOT / "tests" / file).read_text("utf-8")
        assert not test or re.search(rf"^ *def {test}\(", text, re.MULTILINE), (file, test)
