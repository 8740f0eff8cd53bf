import pytest

from reproductions.jiang2019.registry import ITEMS
from reproductions.jiang2019.scales import ScaleName
from selective_backprop.lab.cli import main as cli


@pytest.fixture
def typed(monkeypatch):
    """Type a command, and return what was ordered of whom."""
    seen = []
    for name in ("list_items", "run_order"):
        monkeypatch.setattr(cli, name, lambda *given, name=name: seen.append((name, *given[1:])))

    def run(line):
        seen.clear()
        status = cli.app(line.split(), standalone_mode=False)
        assert not status
        ((what, items, order),) = seen
        return what, [item.name for item in items], order

    return run


def test_what_is_named_is_redone_at_the_small_scale_with_three_seeds(typed, tmp_path):
    what, names, order = typed(f"reproduce fig-7 table-1 --out {tmp_path}")
    assert (what, names) == ("run_order", ["fig-7", "table-1"])
    assert (order.scale.name, order.seeds, order.threads, order.root) == ("small", 3, 1, None)
    assert order.jobs >= 1
    assert order.place.folder == tmp_path / "runs" / "small"


def test_the_list_is_of_all_or_of_what_is_named_with_it(typed):
    assert typed("reproduce list")[:2] == ("list_items", list(ITEMS))
    assert typed("reproduce list fig-1")[:2] == ("list_items", ["fig-1"])


def test_every_option_reaches_the_order(typed):
    line = "reproduce all --scale full --seeds 1 --jobs 3 --threads 2 --device cpu --root here"
    _, names, order = typed(line)
    assert names == list(ITEMS)
    assert order.scale.name == ScaleName.FULL
    assert (order.seeds, order.jobs, order.threads, order.device) == (1, 3, 2, "cpu")
    assert str(order.root) == "here"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("reproduce fig-99", "there is no figure or table 'fig-99'; there are fig-1"),
        ("reproduce fig-1 --device tpu", "--device tpu"),
        ("reproduce fig-1 --root /no/such/folder", "fig-1: /no/such/folder is not a folder"),
    ],
)
def test_what_cannot_be_done_ends_with_a_message_and_a_status(line, said, tmp_path, capfd):
    status = cli.app([*line.split(), "--out", str(tmp_path)], standalone_mode=False)
    assert status == 2
    assert said in capfd.readouterr().err
    assert not list(tmp_path.iterdir())


def test_threads_leave_room_for_fewer_runs_and_a_gpu_for_one(monkeypatch):
    from reproductions.jiang2019 import command

    monkeypatch.setattr(command, "hardware", lambda: {"cores": 8})
    assert [command.default_jobs("cpu", threads) for threads in (1, 2, 3, 16)] == [8, 4, 2, 1]
    assert command.default_jobs("cuda", 1) == 1


def test_drawing_alone_asks_for_no_device_that_is_here(typed):
    *_, order = typed("reproduce all --scale gpu --device cuda:99 --no-train")
    assert (order.trains, order.device) == (False, "cuda:99")
    *_, order = typed("reproduce all --scale gpu")
    assert order.trains


def test_a_scale_of_a_few_figures_makes_all_of_those(typed):
    _, names, _ = typed("reproduce all --scale cifar10")
    assert names == ["fig-6", "fig-7", "table-1", "fig-10", "fig-12", "fig-13"]
