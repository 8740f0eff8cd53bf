import math
from dataclasses import MISSING, asdict, fields, replace
from pathlib import Path

import pytest
from fixture_runs import fixture_header, fixture_point, fixture_run

import selective_backprop as sb
import selective_backprop_lab as lab
from selective_backprop_lab.records.frame import COLUMNS, frame_of
from selective_backprop_lab.records.lines import decode, encode
from selective_backprop_lab.records.schema import (
    SCHEMA,
    Header,
    Point,
    read_run,
    read_runs,
    record_path,
)


def lines_of(header=None, points=(), end=True):
    header = header or fixture_header()
    lines = [encode({"kind": "run", "schema": SCHEMA, **vars(header)})]
    lines += [encode({"kind": "point", **asdict(point)}) for point in points]
    return [*lines, encode({"kind": "end", "status": "finished", "meters": {}})] if end else lines


@pytest.fixture
def write(tmp_path):
    def to_file(*lines, name="a.jsonl"):
        path = tmp_path / name
        path.write_bytes(b"".join(lines))
        return path

    return to_file


def test_points_are_read_as_they_were_written(write):
    odd = {"class_errors": (math.nan, 5.0), "ranking": 0.5, "phases": {"é": -math.inf}}
    points = [fixture_point(), fixture_point(cost=math.inf, test_loss=math.nan, **odd)]
    assert repr(list(read_run(write(*lines_of(points=points))).points)) == repr(points)


def test_a_whole_number_is_read_as_a_float_and_what_older_records_lack_is_missing(write):
    older = asdict(fixture_point()) | {"cost": 3}
    del older["class_errors"], older["ranking"]
    (point,) = read_run(write(lines_of()[0], encode({"kind": "point", **older}))).points
    assert isinstance(point.cost, float)
    assert (point.class_errors, point.ranking) == (None, None)


def test_a_run_without_end_or_with_another_status_is_unfinished(write):
    assert not read_run(write(*lines_of(end=False))).finished
    failed = encode({"kind": "end", "status": "interrupted"})
    assert not read_run(write(lines_of()[0], failed)).finished


def test_a_file_cut_anywhere_is_read_up_to_its_last_whole_line(write):
    points = [fixture_point(0.5), fixture_point(1.0)]
    lines = lines_of(points=points)
    content = b"".join(lines)
    for cut in range(len(lines[0]), len(content)):
        run = read_run(write(content[:cut]))
        assert run.points == tuple(points[: content[:cut].count(b"\n") - 1])
        assert not run.finished


@pytest.mark.parametrize("content", [b"", b'{"kind": "run", "sch'])
def test_a_file_without_header_is_refused_by_name(write, content):
    with pytest.raises(sb.RecordError, match=r"a\.jsonl: no header"):
        read_run(write(content))


@pytest.mark.parametrize("garbage", [b"garbage\n", b"\n", b"[]\n", b"\xff\n", b'{"kind": NaN}\n'])
def test_garbage_before_the_last_line_is_refused_with_file_and_line(write, garbage):
    header, *rest = lines_of(points=[fixture_point()])
    with pytest.raises(sb.RecordError, match=r"a\.jsonl, line 2"):
        read_run(write(header, garbage, *rest))


def test_a_first_line_of_another_schema_or_kind_is_refused(write):
    line = encode({"kind": "run", "schema": 1, **vars(fixture_header())})
    with pytest.raises(sb.RecordError, match="line 1: schema 1, expected 2"):
        read_run(write(line))
    with pytest.raises(sb.RecordError, match="line 1: kind 'point', expected 'run'"):
        read_run(write(encode({"kind": "point"})))


@pytest.mark.parametrize(
    "name", [field.name for field in fields(Header) if field.default is MISSING]
)
def test_a_header_that_lacks_something_is_refused(write, name):
    entry = {"kind": "run", "schema": SCHEMA, **vars(fixture_header())}
    del entry[name]
    with pytest.raises(sb.RecordError, match=f"line 1: {name} is None"):
        read_run(write(encode(entry)))


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("config", "data"), ["digits"]),
        (("config", "composition", "skew"), {}),
        (("config", "recipe", "learning_rate"), None),
        (("end", "meters", "class_shares"), ["half", "half"]),
        (("end", "meters", "test_examples"), "many"),
    ],
)
def test_what_is_read_of_a_header_or_an_end_has_its_type_checked(write, place, value):
    header, end = map(decode, lines_of())
    entry = end if place[0] == "end" else header
    *outer, name = place[1:] if place[0] == "end" else place
    for key in outer:
        entry = entry.setdefault(key, {})
    entry[name] = value
    line, said = (2 if place[0] == "end" else 1), ".".join(place)
    with pytest.raises(sb.RecordError, match=rf"a\.jsonl, line {line}: (an entry of )?{said} is"):
        read_run(write(encode(header), encode(end)))


def test_errors_and_shares_of_another_number_of_classes_are_refused(write):
    header, end = lines_of()
    two, three = (
        encode({"kind": "point", **asdict(fixture_point(class_errors=(5.0,) * classes))})
        for classes in (2, 3)
    )
    with pytest.raises(sb.RecordError, match=r"a\.jsonl: class_errors .* 2 and 3 classes"):
        read_run(write(header, two, three, end))
    shares = encode({"kind": "end", "meters": {"class_shares": [0.2, 0.3, 0.5]}})
    with pytest.raises(sb.RecordError, match=r"a\.jsonl: .*class_shares .* 2 and 3 classes"):
        read_run(write(header, two, shares))
    assert read_run(write(header, three, shares)).meters["class_shares"] == [0.2, 0.3, 0.5]


@pytest.mark.parametrize("value", ["five", None, True, 10**400])
@pytest.mark.parametrize(
    "name", [field.name for field in fields(Point) if field.default is MISSING]
)
def test_a_point_that_holds_something_else_is_refused(write, name, value):
    line = encode({"kind": "point", **asdict(fixture_point()), name: value})
    with pytest.raises(sb.RecordError, match=f"line 2: {name} is"):
        read_run(write(lines_of()[0], line))


def test_lines_of_another_kind_or_after_the_end_are_refused(write):
    lines = lines_of()
    with pytest.raises(sb.RecordError, match="kind is 'pint'"):
        read_run(write(lines[0], encode({"kind": "pint"})))
    with pytest.raises(sb.RecordError, match="line 3: something follows the end"):
        read_run(write(*lines, encode({"kind": "point", **asdict(fixture_point())})))


def test_a_folder_gives_its_records_in_order_of_name_and_nothing_else(write, tmp_path):
    for seed, name in enumerate(["b.jsonl", "a.jsonl"]):
        write(*lines_of(fixture_header(seed=seed)), name=name)
    for other in ["c.jsonl.partial", "c.jsonl.new", "notes.txt"]:
        write(b"no record", name=other)
    assert [run.header.seed for run in read_runs(tmp_path)] == [1, 0]
    assert read_runs(str(tmp_path)) == read_runs(tmp_path)


def test_a_run_has_one_file_and_another_run_another(tmp_path):
    header = fixture_header("stale sb/2", 3)
    path = record_path(tmp_path, header)
    assert path.parent == tmp_path
    assert path.name.startswith("stale_sb_2-seed3-")
    assert path == record_path(tmp_path, replace(header, started="later", code_version="other"))
    others = [
        fixture_header("stale sb/2", 4),
        fixture_header("stale sb_2", 3),
        replace(header, identity=header.identity | {"evaluations": 5}),
    ]
    assert len({path, *(record_path(tmp_path, other) for other in others)}) == 4


ROOT = Path(__file__).parents[3]
DEMO = ROOT / "records" / "demo"


def test_a_row_is_an_evaluation_and_every_column_is_described():
    runs, found = read_runs(DEMO), lab.frame(DEMO)
    assert list(found.columns) == list(COLUMNS)
    assert {field.name for field in fields(Point)} < {*COLUMNS}
    assert len(found) == sum(len(run.points) for run in runs)
    run, rows = runs[0], found[found.run == runs[0].path.name]
    assert [*rows.error] == [point.test_error for point in run.points]
    assert [*rows.evaluation] == list(range(len(run.points)))
    assert {*rows.seed} == {run.header.seed}
    assert {*rows.arm} == {run.header.arm}


@pytest.mark.parametrize(
    ("end", "timed"),
    [
        ({}, True),
        ({"machines": ["A", "A"], "shared_gpu": False}, True),
        ({"machines": ["A", "B"]}, False),
        ({"machines": ["A"], "shared_gpu": True}, False),
    ],
)
def test_a_run_of_two_machines_or_on_a_shared_gpu_has_no_seconds(end, timed):
    found = frame_of([fixture_run(end=end)])
    assert {*found[["seconds", "cpu_seconds"]].notna().to_numpy().flat} == {timed}
    assert found.cost.notna().all()
