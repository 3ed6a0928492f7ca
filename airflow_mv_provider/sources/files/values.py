"""The format that a text in a file must have to be a value of a type, and the value. Spark's own parser guesses:

    type       text                                Spark's value
    DATE       2024, 2024-01, 2024-01-05 or so     1 January, the 1st, the 5th
    TIMESTAMP  12:30                               12:30 today, which differs from day to day
    DOUBLE     1d, 0x1p3, 1e999                    1, 8, infinity
    DECIMAL    1,2,34                              1234

Other types need no check: Spark rejects every text that is not, for example, an integer or a boolean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast

from pyspark.sql import Column
from pyspark.sql import functions as F
from pyspark.sql.types import (
    ArrayType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    MapType,
    StructType,
    TimestampNTZType,
    TimestampType,
)

_DATE = r"[+-]?\d{4,7}-\d{1,2}-\d{1,2}"
_TIME = r"[ T]\d{1,2}:\d{1,2}"
_NUMBER = r"[+-]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_GROUPED = r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d*)?"
_WORDS = ("NaN", "Infinity", "+Infinity", "-Infinity")


def is_guessed(kind: DataType, options: Mapping[str, str]) -> bool:
    """True if Spark accepts invalid texts for this type, and no option for its format or locale is set."""
    match kind:
        case DateType():
            return "dateFormat" not in options
        case TimestampType():
            return "timestampFormat" not in options
        case TimestampNTZType():
            return "timestampNTZFormat" not in options
        case DecimalType():
            return "locale" not in options
    return isinstance(kind, DoubleType | FloatType)


def form_of(kind: DataType) -> str | None:
    """Return the regular expression for the valid texts of a type; None if Spark accepts no others."""
    match kind:
        case DateType():
            return rf"\A\s*{_DATE}\s*\z"
        case TimestampType():  # Spark itself checks the text after hours and minutes
            return rf"\A\s*{_DATE}(?:{_TIME}.*)?\s*\z"
        case TimestampNTZType():
            return rf"\A\s*{_DATE}(?:{_TIME}(?::\d{{1,2}}(?:\.\d*)?)?)?\s*\z"
        case DoubleType() | FloatType():
            return rf"\A\s*{_NUMBER}\s*\z"
        case DecimalType():
            return rf"\A(?:{_NUMBER}|{_GROUPED})\z"
    return None


def value_of(text: Column, kind: DataType, words: Sequence[str] = _WORDS) -> Column:
    """Return the value of a text; NULL if the text is invalid for the type.

    words : texts such as NaN that are also valid for DOUBLE and FLOAT
    """
    form = form_of(kind)
    assert form is not None
    plain = F.replace(text, F.lit(","), F.lit("")) if isinstance(kind, DecimalType) else text
    value = plain.try_cast(kind)
    if isinstance(kind, DoubleType | FloatType):
        value = F.when(F.abs(value) != float("inf"), value)
        return F.when(text.rlike(form), value).when(text.isin(*words), text.try_cast(kind))
    return F.when(text.rlike(form), value)


def is_misspelt(text: Column, kind: DataType, words: Sequence[str] = _WORDS) -> Column:
    """Return the condition that a text is invalid for a type although Spark's JSON reader accepted it.

    cost : less than `value_of`, because that reader does not accept the texts that only casts do
    """
    if isinstance(kind, DoubleType | FloatType):
        value = text.try_cast(kind)
        # Spark puts quotes around a word that had none, which `allowNonNumericNumbers` admits; but also around the
        # infinity that it makes of 1e999.
        is_word = text.isin(*words, *(f'"{word}"' for word in words if word == "NaN"))
        return ~is_word & (value.isNull() | (F.abs(value) == float("inf")))
    is_other = ~text.rlike(cast(str, form_of(kind)))
    return text.contains(",") & is_other if isinstance(kind, DecimalType) else is_other


def expectation(name: str, kind: DataType) -> Column:
    """Return the beginning of a message about a text that is invalid for a column's type."""
    return F.lit(f"{name}: expected {_spelled(kind)}, found ")


def _spelled(kind: DataType) -> str:
    """Return a type as it is written in a definition's schema."""
    match kind:
        case StructType(fields=fields):
            return f"STRUCT<{', '.join(f'{field.name}: {_spelled(field.dataType)}' for field in fields)}>"
        case ArrayType(elementType=element):
            return f"ARRAY<{_spelled(element)}>"
        case MapType(keyType=key, valueType=value):
            return f"MAP<{_spelled(key)}, {_spelled(value)}>"
    return kind.simpleString().upper()
