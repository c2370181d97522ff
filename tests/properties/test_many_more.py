"""All of the properties with hundreds of inputs each, drawn anew."""

import pytest

from tests.helpers import ROOT, run_script


@pytest.mark.slow
def test_properties_of_many_more_inputs():
    done = run_script("-m", "pytest", "-q", "tests/properties", cwd=ROOT, HYPOTHESIS_PROFILE="slow")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
