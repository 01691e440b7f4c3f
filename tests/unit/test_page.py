"""The report page: what a browser would find in it."""

import base64
import json
from html.parser import HTMLParser
from pathlib import Path

import pytest

from aql import cli
from aql.config import Config
from aql.sweep import results

pytest.importorskip("matplotlib")

VOID = ("meta", "img", "br")


class Page(HTMLParser):
    """Checks that tags are closed, and keeps the cells, the texts and what is embedded."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._open: list[str] = []
        self.sources: list[tuple[str, str]] = []  # of pictures and films: tag, address
        self.rows: list[list[str]] = []
        self.texts: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag not in VOID:
            self._open.append(tag)
        self.sources += [(tag, value or "") for name, value in attrs if name in ("src", "href")]
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self._open and self._open[-1] in ("td", "th"):
            self.rows[-1][-1] += data
        self.texts.append(data)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    folder = tmp_path / "run <1>"
    folder.mkdir()
    config = Config(env="toy/chain", seed=3, gamma=0.9)
    (folder / "config.json").write_text(json.dumps({"config": config.to_json(), "commit": None}))
    rows = [
        {"actor_steps": 100 * n, "seconds": 10.0 * n, "updates": n, "return_mean": 1.0, "q_mean": 0.5 * n, "nan": None}
        | {"share_from_proposal": 0.0}
        for n in (1, 2, 3)
    ]
    rows += [{"actor_steps": 300, "seconds": 30.0, "eval_return_mean": 2.5, "eval_return_std": 0.5}]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder


@pytest.fixture
def sweep(tmp_path: Path) -> Path:
    path = tmp_path / "results.csv"
    path.write_text(
        ",".join(results.COLUMNS) + "\n"
        "s,control/walker-walk,aql,fast,0,10,60,100,0.1,,abc,h\n"
        "s,control/walker-walk,aql,fast,0,20,120,300,0.1,,abc,h\n"
        "s,control/walker-walk,aql,fast,1,10,60,900,0.1,,abc,h\n"
        "s,control/walker-walk,aql,fast,1,20,120,500,0.1,,abc,h\n"
    )
    return path


def test_a_run_with_its_settings_metrics_and_film(run: Path, tmp_path: Path) -> None:
    (run / "film.mp4").write_bytes(b"a film")
    output = tmp_path / "new" / "page.html"
    assert cli.main(["report", str(run), "-o", str(output)]) == 0
    page = Page(output)
    assert page.rows[:2] == [
        ["task", "agent", "last return", "best", "steps", "minutes"],
        ["toy/chain", "aql", "2.5", "2.5", "300", "0.5"],
    ]
    assert ["gamma", "0.9", "discount per step"] in page.rows
    assert any("seed 3, gamma 0.9" in " ".join(text.split()) for text in page.texts)
    assert [tag for tag, _ in page.sources] == ["img", "img", "video", "img"]  # steps, minutes, the film, the metrics
    film = page.sources[2][1].removeprefix("data:video/mp4;base64,")
    assert base64.b64decode(film) == b"a film"
    charts = base64.b64decode(page.sources[3][1].removeprefix("data:image/svg+xml;base64,")).decode()
    names = ("q mean", "steps per second", "nan", "return mean", "share from proposal")
    assert [name for name in names if f">{name}<" in charts] == ["q mean", "steps per second"]


def test_a_sweep_in_numbers(sweep: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert cli.main(["report", str(sweep), "-o", str(output)]) == 0
    assert Page(output).rows == [
        ["task", "agent", "last return", "95 % interval", "of each seed", "best", "steps", "minutes", "paper, 200M"],
        ["control/walker-walk", "aql", "400", "300 to 500", "300, 500", "900", "20", "2.0", "966"],
    ]


def test_it_needs_nothing_else_and_is_the_same_again(run: Path, sweep: Path, tmp_path: Path) -> None:
    pages = [tmp_path / name for name in ("first.html", "second.html")]
    for page in pages:
        assert cli.main(["report", str(run), str(sweep), "-o", str(page)]) == 0
    assert pages[0].read_bytes() == pages[1].read_bytes()
    assert all(address.startswith("data:") for _, address in Page(pages[0]).sources)


def test_without_a_film_it_says_how_to_make_one(run: Path, tmp_path: Path) -> None:
    output = tmp_path / "page.html"
    assert cli.main(["report", str(run), "-o", str(output)]) == 0
    assert f"aql watch {run}" in Page(output).texts  # the folder's name has < and > in it


def test_runs_without_common_minutes_keep_their_steps(sweep: Path, tmp_path: Path) -> None:
    slow = tmp_path / "slow.csv"
    slow.write_text(sweep.read_text().replace(",1,10,60,", ",1,10,600,").replace(",1,20,120,", ",1,20,1200,"))
    output = tmp_path / "page.html"
    assert cli.main(["report", str(slow), "-o", str(output)]) == 0
    page = Page(output)
    assert [tag for tag, _ in page.sources] == ["img"]
    assert any("no minutes in common (10 is after 2)" in text for text in page.texts)


def test_what_is_not_there_is_one_line_and_code_2(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["report", str(tmp_path / "absent"), "-o", str(tmp_path / "page.html")]) == 2
    assert capsys.readouterr().err.count("\n") == 1
    assert not (tmp_path / "page.html").exists()
