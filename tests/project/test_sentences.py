"""The script that draws sentences says where each stands."""

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
main = runpy.run_path(str(ROOT / "scripts" / "sentences"))["main"]


def test_a_seed_draws_the_same_sentences_again_from_where_it_says(capsys):
    def draw(seed: str) -> list[str]:
        main("20", seed, "docs/auto.md")
        return capsys.readouterr().out.splitlines()

    drawn = draw("7")
    assert draw("7") == drawn != draw("8")
    assert len({line.partition(". ")[2] for line in drawn}) == 20
    text = (ROOT / "docs/auto.md").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(drawn, 1):
        found = re.match(rf"{number}\. docs/auto\.md:(\d+): (\S+)", line)
        assert found is not None
        assert found[2] in text[int(found[1]) - 1]
