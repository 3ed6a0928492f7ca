"""Numbers of JSON as they are written, where a STRING takes them.

Spark passes a number through a DOUBLE or an INT on its way into a STRING: 1.10 becomes 1.1, -0 becomes 0, and 1e400
"Infinity". So each number of a text is made a text between two marks before it is parsed, and the marks are taken off.
"""

from __future__ import annotations

from collections.abc import Mapping

from pyspark.sql import Column
from pyspark.sql import functions as F

# A number that may be spelt in another way, and some texts that look like one; what Spark may have made of it.
_MAY_BE_RESPELT = r"[:,\[]\s*+(?:-?[0-9]++[.eE]|-0)"
_MAY_BE_A_NUMBER = r'^(?:(?:-?[0-9][.0-9]*+(?:E-?[0-9]++)?|"-?Infinity")$|[{\[])'
_ANY_SPELLING = ("allowComments", "allowNumericLeadingZeros")  # with these, other numbers and other places, too
_MARK = "\ufdd0"  # no text has it: Unicode keeps it for a program's own use
# All before a number, and the number. What is possessive is matched without recursion, however long it is.
_NUMBER = "".join(
    (
        *(r"(?s)\G((?:[^-0-9\"'/\w$]++|[A-Za-z_$][\w$]*+", r'|"(?:[^"\\]++|\\.)*+"', r"|'(?:[^'\\]++|\\.)*+'"),
        *(r"|/\*(?:[^*]++|\*(?!/))*+\*/|//[^\n]*+", r"|-(?![0-9]))*+)(-?[0-9][-+.0-9eE]*+)"),
    )
)
_MARKED_NUMBER = rf'"?{_MARK}([-+.0-9eE]++){_MARK}"?'


def may_be_respelt(text: Column, options: Mapping[str, str]) -> Column:
    """Return the condition that JSON may have a number which Spark spells in another way."""
    is_any = any(options.get(name, "").lower() == "true" for name in _ANY_SPELLING)
    return F.lit(True) if is_any else text.rlike(_MAY_BE_RESPELT)


def may_be_a_number(value: Column) -> Column:
    """Return the condition that Spark may have read this STRING from a number, or from an object or array of some."""
    return value.rlike(_MAY_BE_A_NUMBER)


def marked(text: Column) -> Column:
    """Return JSON with each of its numbers as a text between two marks."""
    return F.regexp_replace(text, _NUMBER, f'$1"{_MARK}$2{_MARK}"')


def unmarked(text: Column) -> Column:
    """Return a text that was read from `marked` JSON, or JSON in it, with its numbers as they were."""
    return F.regexp_replace(text, _MARKED_NUMBER, "$1")
