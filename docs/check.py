"""Checks the documentation: every relative link leads to a file and its heading, every `python` block compiles."""

import re
import sys
from pathlib import Path
from urllib.parse import unquote

ROOT = Path(__file__).resolve().parent.parent
FENCE = re.compile(r"^(?P<indent> *)```(?P<language>[^\n`]*)\n(?P<code>.*?)^ *```", re.DOTALL | re.MULTILINE)
# [text](target) and ![alt](target "title"), and the src and href of HTML.
LINK = re.compile(r"""\]\(\s*<?([^)\s>]+)|(?:src|href)=["']([^"']+)["']""")
ELSEWHERE = re.compile(r"[a-z][a-z0-9+.-]*:", re.IGNORECASE)  # another site
HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


def problems(page: Path) -> list[str]:
    """What is wrong with one page, as `page:line: what`."""
    text = page.read_text(encoding="utf-8")
    name = page.relative_to(ROOT)
    found = []
    for block in FENCE.finditer(text):
        if block["language"].split()[:1] != ["python"]:
            continue
        line = text.count("\n", 0, block.start("code")) + 1
        code = re.sub(rf"^{block['indent']}", "", block["code"], flags=re.MULTILINE)
        try:
            compile(code, str(name), "exec")
        except SyntaxError as error:
            found.append(f"{name}:{line + (error.lineno or 1) - 1}: {error.msg}")
    # Code is blanked, not removed, so that lines keep their numbers.
    prose = FENCE.sub(lambda block: "\n" * block[0].count("\n"), text)
    prose = re.sub(r"`[^`\n]*`", "", prose)
    for link in LINK.finditer(prose):
        target = link[1] or link[2]
        path, _, heading = unquote(target).partition("#")
        place = page.parent / path if path else page
        if ELSEWHERE.match(target) or (place.exists() and (not heading or heading in anchors(place))):
            continue
        found.append(f"{name}:{prose.count(chr(10), 0, link.start()) + 1}: {target} does not exist")
    return found


def anchors(page: Path) -> set[str]:
    """What links to the headings of a page end in, as GitHub makes them."""
    headings = HEADING.findall(FENCE.sub("", page.read_text(encoding="utf-8")))
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def main() -> int:
    """Prints all problems; 1 if there are any."""
    pages = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]
    found = [problem for page in pages for problem in problems(page)]
    print("\n".join([*found, f"{len(pages)} pages, {len(found)} problems"]))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
