"""The example in the README runs as it stands."""

from __future__ import annotations

import re
from pathlib import Path

README = Path(__file__).parents[3] / "timeline" / "README.md"


def test_example() -> None:
    (example,) = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    exec(compile(example, str(README), "exec"), {})
