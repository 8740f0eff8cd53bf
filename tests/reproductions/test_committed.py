import pytest
from fixture_records import RECORDS

import selective_backprop as sb
from reproductions.jiang2019.command import Order, gather
from reproductions.jiang2019.index import section
from reproductions.jiang2019.registry import items_at
from reproductions.jiang2019.scales import SCALES, ScaleName
from selective_backprop.lab.records.schema import read_runs

PAGES = sorted((RECORDS / "papers").glob("*/index.md"))
NEED_DATA = {"fig-2", "fig-15", "diet-images", "diet-classes"}  # which may not be at hand


def test_there_are_committed_pages():
    assert PAGES


@pytest.mark.parametrize("written", PAGES, ids=lambda written: written.parent.name)
def test_a_committed_page_says_what_its_records_say(written, one_thread):
    (folder,) = (written.parent / "runs").iterdir()
    scale, headers = SCALES[ScaleName(folder.name)], [run.header for run in read_runs(folder)]
    order = Order(
        scale=scale,
        seeds=1 + max(header.seed for header in headers),
        device=headers[0].device,
        threads=1,
        jobs=1,
        root=None,
        out=written.parent,
        command="",
        trains=False,
    )
    page = written.read_text(encoding="utf-8")
    for item in items_at(scale):
        assert (order.out / f"{item.name}.png").exists() == (item.name != "table-1")
        try:
            found = gather(item, order, {})
            said = section(item, found, item.present(found))
        except sb.DataError:
            assert item.name in NEED_DATA
        else:
            assert said in page
