"""Four processes for all modules, of which two or four form a group."""

import pytest
from fixture_ranks import started_ranks


@pytest.fixture(scope="package")
def processes(tmp_path_factory):
    with started_ranks(4, tmp_path_factory.mktemp("ranks")) as ranks:
        yield ranks
