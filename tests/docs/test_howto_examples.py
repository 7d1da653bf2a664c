"""Every example of docs/howto runs, and shows what it says it shows."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.pages import name, pages
from tests.docs.test_examples import is_howto, run_page


@pytest.mark.parametrize("page", [page for page in pages() if is_howto(page)], ids=name)
def test_the_examples_of_a_page_run(page: Path, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    run_page(page, tmp_path, request)
