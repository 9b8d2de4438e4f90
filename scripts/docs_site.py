"""Which files make the documentation site: a hook of mkdocs (`make docs`).

Pages are the repository's own Markdown files, each at its own path, so links between them need no rewriting.
A link to anything else of the repository (a module, a folder of tests) leads to a page that shows that file
or lists that folder.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import unquote

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page
from pygments import highlight
from pygments.formatters import HtmlFormatter
from pygments.lexers import get_lexer_for_filename
from pygments.lexers.special import TextLexer
from pygments.util import ClassNotFound

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("*.md", "docs/**/*.md", "benchmarks/README.md", "benchmarks/results/latest.md")
WIDE = {"docs/interop.md", "docs/options.md"}
COPIED = {".svg", ".png", ".css"}
LINK = re.compile(r"\]\(([^)\s]+)\)")
LONG_CODE = re.compile(r"(?<=<code>)[^<>&]{20,}(?=</code>)")


def pages() -> list[Path]:
    """The Markdown files that are pages, relative to the repository."""
    return sorted(path.relative_to(ROOT) for pattern in PAGES for path in ROOT.glob(pattern))


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Replace what mkdocs found in docs/ by the pages and what they link to; keep the theme's own files."""
    chosen = Files([file for file in files if Path(file.src_dir or "") != ROOT / "docs"])
    copied = [path.relative_to(ROOT) for path in (ROOT / "docs").rglob("*") if path.suffix in COPIED]
    whole = [*pages(), *copied]
    for path in whole:
        chosen.append(File(path.as_posix(), str(ROOT), config.site_dir, config.use_directory_urls))
    for path in sorted(set(_linked()) - set(whole)):
        chosen.append(_shown(path, config))
    return chosen


def on_page_markdown(markdown: str, page: Page, **_: object) -> None:
    """Pages with wide tables take the place of their table of contents."""
    if page.file.src_uri in WIDE:
        page.meta["hide"] = ["toc"]


def on_page_content(content: str, **_: object) -> str:
    """Let long names in code break behind their dots, so that columns of tables need not cut words."""
    return LONG_CODE.sub(lambda found: found[0].replace(".", ".<wbr>"), content)


def _linked() -> Iterator[Path]:
    """What the pages link to within the repository, relative to it."""
    for page in pages():
        for link in LINK.findall((ROOT / page).read_text(encoding="utf-8")):
            target = unquote(link.partition("#")[0])
            path = (ROOT / page).parent / target
            if target and ":" not in target and path.exists():
                yield path.resolve().relative_to(ROOT)


def _shown(path: Path, config: MkDocsConfig) -> File:
    """A page that shows a file's text, or a folder's names."""
    place = ROOT / path
    if place.is_dir():
        names = sorted(p.name + "/" * p.is_dir() for p in place.iterdir() if p.name != "__pycache__")
        text, lexer = "\n".join(names), TextLexer()
    else:
        text = place.read_text(encoding="utf-8")
        try:
            lexer = get_lexer_for_filename(path.name)
        except ClassNotFound:
            lexer = TextLexer()
    title = html.escape(path.as_posix())
    body = highlight(text, lexer, HtmlFormatter(full=True, title=title, linenos=False))
    file = File.generated(config, path.as_posix(), content=body)
    file.dest_uri = f"source/{path.as_posix()}.html"
    return file
