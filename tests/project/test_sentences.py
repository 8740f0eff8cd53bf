"""The script that draws sentences finds prose, and says where it stands."""

import re
import runpy
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).parents[2]
script = SimpleNamespace(**runpy.run_path(str(ROOT / "scripts" / "sentences")))

PAGE = """# A heading with many words

Here is one sentence,
over two lines. Here is [another](page.md) one, e.g. this.

| a table | has no | sentences at all |
|---|---|---|

```python
code = "is not prose. Nor is this."
```
- An item is a sentence.
- **Bold** begins the next item.

<!-- bench records/made.json -->
What records say is not drawn.
<!-- end -->
"""
SOURCE = """class Public:
    '''Do what it says for the user.

    Args:
        rate: which share is kept of all.

    Example:
        >>> Public(1).rate_of_all_that_is_kept  # not a sentence
    '''

    def method(self):
        '''Return what the method returns.'''

    def _private(self):
        '''Return what nobody outside sees.'''


def internal():
    '''Return what no page documents.'''
"""


def test_sentences_are_prose_of_pages_or_of_what_is_public_with_their_lines():
    assert list(script.sentences(PAGE, 1)) == [
        (3, "Here is one sentence, over two lines."),
        (4, "Here is [another](page.md) one, e.g. this."),
        (12, "An item is a sentence."),
        (13, "**Bold** begins the next item."),
    ]
    drawn = (script.sentences(text, at) for at, text in script.docstrings(SOURCE, {"Public"}))
    assert [each for some in drawn for each in some] == [
        (2, "Do what it says for the user."),
        (5, "rate: which share is kept of all."),
        (12, "Return what the method returns."),
    ]


def test_a_seed_draws_the_same_sentences_again_from_where_it_says(capsys):
    def draw(seed: str) -> list[str]:
        script.main("20", seed, "docs/auto.md")
        return capsys.readouterr().out.splitlines()

    drawn = draw("7")
    assert draw("7") == drawn != draw("8")
    assert len({line.partition(". ")[2] for line in drawn}) == 20
    text = (ROOT / "docs/auto.md").read_text(encoding="utf-8").splitlines()
    for number, line in enumerate(drawn, 1):
        found = re.match(rf"{number}\. docs/auto\.md:(\d+): (\S+)", line)
        assert found is not None
        assert found[2] in text[int(found[1]) - 1]
