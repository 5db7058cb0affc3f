"""What the site adds to the pages of docs/, and how it turns their links."""

from __future__ import annotations

from pathlib import Path

import replog
from tests.lint import documents
from tools import site_pages

SOURCES = {"README.md", "SPARK.md", "guides/FASTAPI.md", "repository/CHANGELOG.md", "repository/bench/README.md"}


def test_links_lead_to_where_the_site_has_their_files() -> None:
    for link, page, expected in (
        ("SPARK.md", "README.md", "SPARK.md"),
        ("../SPARK.md", "guides/FASTAPI.md", "../SPARK.md"),
        ("../CHANGELOG.md", "README.md", "repository/CHANGELOG.md"),
        ("../../CHANGELOG.md", "guides/FASTAPI.md", "../repository/CHANGELOG.md"),
        ("docs/SPARK.md", "repository/CHANGELOG.md", "../SPARK.md"),
        ("../docs/SPARK.md", "repository/bench/README.md", "../../SPARK.md"),
        ("../replog/log.py", "README.md", "../replog/log.py"),
    ):
        assert site_pages.turned(link, page, SOURCES) == expected, (link, page)


def test_lists_are_set_apart_outside_of_code() -> None:
    page = "Text:\n- one\n- two\n  goes on\n- three\n\n```\nkey:\n- left\n```\n"
    assert site_pages.apart(page) == page.replace("Text:\n", "Text:\n\n")


def test_the_reference_has_every_public_name_once() -> None:
    pages = {module: site_pages.reference(module) for module in site_pages.MODULES}
    assert all(f"\n::: replog.{name}\n" in pages["replog"] for name in replog.__all__ if name != "__version__")
    assert "::: replog.client.SyncProducer\n" in pages["replog.client"]
    assert "::: replog.client.Producer\n" not in pages["replog.client"]
    assert {"replog", *(f"replog.{name}" for name in replog._MODULES)} == pages.keys()


def test_a_link_to_no_file_is_found(tmp_path: Path) -> None:
    page = tmp_path / "PAGE.md"
    page.write_text(
        "[here](PAGE.md#top), `[code](nothing.md)`, [far](https://example.org/x.md)\n[gone](../docs/GONE.md)\n"
    )
    assert documents.broken_links(page) == ["PAGE.md:2: ../docs/GONE.md"]
