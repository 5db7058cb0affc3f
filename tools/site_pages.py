"""Gives the site of `mkdocs.yml` what is not in docs/: pages of other folders, and the reference of the public names.

MkDocs takes this file as a hook.  Links between documents are written as they work in the repository; here those that
leave docs/ are turned to where the site has that file.  A link to a file that the site has not is left alone, and the
strict build ends with it.
"""

from __future__ import annotations

import importlib
import posixpath
import re
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[1]
DOCS, OTHERS = "docs", "repository"
OUTSIDE = (
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    *(f"{folder}/README.md" for folder in ("bench", "chaos", "checkpoints", "examples", "quorum", "timeline")),
    "bench/RESULTS.md",
    "ops/**/*",
)
"""What the site has of the repository besides docs/, below `repository/`."""

MODULES = (
    "replog",
    "replog.client",
    "replog.cluster",
    "replog.codecs",
    "replog.errors",
    "replog.local",
    "replog.records",
    "replog.registry",
    "replog.spark",
    "replog.testing",
    "replog.worker",
)
"""Those with public names; each is a page of the reference."""

_FENCED = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)
_LIST_BEGINS = re.compile(r"^(\w.*|[*`(].*)\n(?=- )", re.MULTILINE)
_LINK = re.compile(r"(?<=\]\()([^)#\s:]+)(?=[)#])")


def repository_path(src_uri: str) -> str:
    """Returns where a file of the site is in the repository."""
    head, _, rest = src_uri.partition("/")
    return rest if head == OTHERS else f"{DOCS}/{src_uri}"


def site_uri(path: str) -> str:
    """Returns where a file of the repository is among the sources of the site."""
    head, _, rest = path.partition("/")
    return rest if head == DOCS else f"{OTHERS}/{path}"


def turned(link: str, src_uri: str, sources: set[str]) -> str:
    """Returns a relative link of a page as the site needs it: as it is, if the site has no such file.

    Args:
        link: What stands in the page, from the page's place in the repository.
        src_uri: The page that it stands in.
        sources: The paths of all files of the site, from its root.
    """
    target = site_uri(posixpath.normpath(posixpath.join(posixpath.dirname(repository_path(src_uri)), link)))
    return posixpath.relpath(target, posixpath.dirname(src_uri) or ".") if target in sources else link


def reference(module: str) -> str:
    """Returns the page of a module's public names, each with its docstring, as mkdocstrings reads it.

    What `replog` has too is on its page only.
    """
    found, top = importlib.import_module(module), importlib.import_module("replog")
    names = [name for name in getattr(found, "__all__", ()) if not name.startswith("_")]
    first = [name for name in names if module != "replog" and getattr(top, name, None) is getattr(found, name)]
    lines = [f"# {module}"]
    if first:
        lines.append("Also here: " + ", ".join(f"[`{name}`][replog.{name}]" for name in first) + ".")
    lines += [f"::: {module}.{name}" for name in names if name not in first] or [f"::: {module}"]
    return "\n\n".join(lines) + "\n"


def apart(markdown: str) -> str:
    """Returns a page with an empty line before each list: GitHub needs none behind a paragraph, this Markdown does."""
    parts = _FENCED.split(markdown)
    return "".join(part if number % 2 else _LIST_BEGINS.sub(r"\1\n\n", part) for number, part in enumerate(parts))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Adds pages of other folders and the reference to the files of the site."""
    from mkdocs.structure.files import File, InclusionLevel

    for path in sorted({found for pattern in OUTSIDE for found in ROOT.glob(pattern) if found.is_file()}):
        uri = site_uri(path.relative_to(ROOT).as_posix())
        files.append(File.generated(config, uri, abs_src_path=str(path), inclusion=InclusionLevel.NOT_IN_NAV))
    for module in MODULES:
        files.append(File.generated(config, f"reference/{module}.md", content=reference(module)))
    return files


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Adds the reference to the navigation."""
    if config.nav is not None:
        config.nav.append({"Reference": [{module: f"reference/{module}.md"} for module in MODULES]})
    return config


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Turns the links of a page to where the site has their files, and sets its lists apart."""
    del config
    src_uri, sources = page.file.src_uri, set(files.src_uris)
    return _LINK.sub(lambda found: turned(found[1], src_uri, sources), apart(markdown))
