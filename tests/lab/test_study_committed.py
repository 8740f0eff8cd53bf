"""Committed pages of the study say what their records say."""

from pathlib import Path

import pytest

from selective_backprop.lab.records import read_runs
from selective_backprop.lab.study.command import RUNS, Inquiry, sections_of
from selective_backprop.lab.study.page import compose
from selective_backprop.lab.study.protocol import STAGES, StageName

PAGES = sorted((Path(__file__).parents[2] / "records" / "study").glob("*/index.md"))


@pytest.mark.parametrize("written", PAGES, ids=lambda written: written.parent.name)
def test_a_committed_page_says_what_its_records_say(written, one_thread):
    headers = [run.header for run in read_runs(written.parent / RUNS)]
    inquiry = Inquiry(
        stage=STAGES[StageName(written.parent.name)],
        seeds=len({header.seed for header in headers}),
        device=headers[0].config["device"],
        threads=1,
        jobs=1,
        root=None,
        out=written.parent,
        command="",
        trains=False,
    )
    page = compose(inquiry.stage, sections_of(inquiry))
    assert page.text == written.read_text(encoding="utf-8")
    assert all((written.parent / f"{section.name}.png").exists() for section in page.shown)
