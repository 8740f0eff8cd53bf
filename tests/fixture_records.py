"""The committed records, which tests read and the source distribution leaves out."""

from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECORDS = ROOT / "records"

# Only a source distribution has PKG-INFO: in the repository, records that are missing are a fault.
needs_records = pytest.mark.skipif(
    (ROOT / "PKG-INFO").exists(), reason="a source distribution leaves records/ out"
)
