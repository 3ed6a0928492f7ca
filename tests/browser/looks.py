"""What is wrong with a page's looks, by axe-core in each theme and width, and with how a keyboard alone reaches it."""

from __future__ import annotations

from typing import Any

from axe_playwright_python.sync_playwright import Axe

WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 375, "height": 800}
NARROWEST = 320  # no scrolling to the side, as WCAG's criterion "Reflow" asks
LOOKS = (("light", WIDE), ("dark", WIDE), ("dark", NARROW), ("light", NARROW))


def flaws(page: Any) -> list[str]:
    """Return what axe finds in all themes and widths, and where the page has to be scrolled to the side."""
    found = []
    for theme, size in LOOKS:
        page.emulate_media(color_scheme=theme)
        page.set_viewport_size(size)
        results = Axe().run(page)
        if results.violations_count:
            found.append(f"{theme}, {size['width']} px: {results.generate_report()}")
    page.set_viewport_size(NARROW | {"width": NARROWEST})
    if page.evaluate("document.documentElement.scrollWidth") > NARROWEST:
        found.append(f"wider than {NARROWEST} px")
    return found


def unreached_by_tab(page: Any) -> list[str]:
    """Return what a keyboard alone does not reach, or reaches without showing it."""
    num_wanted = page.evaluate(
        """() => {
          for (const each of document.querySelectorAll("details")) each.open = true;
          const all = document.querySelectorAll("a[href], button, input, select, summary, textarea, [tabindex='0']");
          window.unreached = new Set([...all].filter(each =>
            each.checkVisibility() && each.type !== "hidden" && each.tabIndex >= 0));
          return window.unreached.size;
        }"""
    )
    found = []
    for _ in range(num_wanted + 5):
        page.keyboard.press("Tab")
        html, is_seen = page.evaluate(
            """() => {
              const each = document.activeElement, style = getComputedStyle(each);
              window.unreached.delete(each);
              return [each.outerHTML, style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2];
            }"""
        )
        if html.startswith("<body"):
            break
        if not is_seen:
            found.append(f"nobody sees that the focus is on {html[:100]}")
    left = page.evaluate("[...window.unreached].filter(each => each.isConnected).map(each => each.outerHTML)")
    return found + [f"not reached: {html[:100]}" for html in left]
