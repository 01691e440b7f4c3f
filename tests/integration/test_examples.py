"""The examples run as they are; how well they learn is a matter of more steps."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

EXAMPLES = sorted((Path(__file__).parents[2] / "examples").glob("*.py"))


def test_there_are_three() -> None:
    assert [path.stem for path in EXAMPLES] == ["hybrid_robot", "large_discrete", "masked_scheduling"]


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_runs(path: Path, capsys: Any) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    module.main(2_400)
    output = capsys.readouterr().out
    assert "before learning" in output
    assert "after 2,400 steps" in output
