"""docs/options.md: every option that mainstem reads, made of the declarations in mainstem/options.

    python scripts/options_table.py
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from mainstem.options.declaration import Option  # noqa: E402

PAGE = ROOT / "docs" / "options.md"
GROUPS = (
    "tables", "placing", "writing", "locks", "services", "metadata", "vectors", "reading", "engines",
    "catalogs", "metrics", "stores",
)  # fmt: skip
HEAD = """# Options

<!-- Made by scripts/options_table.py from mainstem/options: do not edit. -->

Every option that mainstem reads, under Hudi's names and with Hudi's defaults; `hoodie.mainstem.*` are its
own. Give them to `open_table` and `create_table` (`properties=`), to a Spark or Flink job, or to the command
line (`-o NAME=VALUE`). An unknown option is refused, with the name that was perhaps meant.

*Also called*: Hudi's other names for it, and in italics its name in Hudi's Flink connector, whose other
options are in [flink.md](flink.md). *Read by*: the part of the package that decides what it means.
"""


def page() -> str:
    """The whole page: a table for each group."""
    lines = [HEAD]
    for group in GROUPS:
        module = import_module(f"mainstem.options.{group}")
        title = (module.__doc__ or "").partition("\n\n")[0].replace("\n", " ").replace("``", "`")
        lines += [f"## {title.rstrip('.')}", ""]
        lines += ["| option | also called | default | accepts | read by | |", "|---|---|---|---|---|---|"]
        lines += [_line(one) for one in vars(module).values() if isinstance(one, Option)]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"


def _line(option: Option) -> str:
    others = [f"`{name}`" for name in option.aliases] + ([f"*`{option.flink}`*"] if option.flink else [])
    default = f"`{option.shown_default}`" if option.shown_default else ""
    refused = f" Other values are refused: {option.why}." if option.why else ""
    about = (default, option.expected, option.read_by, option.says + refused)
    cells = (f"`{option}`", "<br>".join(others), *about)
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def main() -> int:
    """Write the page anew."""
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
