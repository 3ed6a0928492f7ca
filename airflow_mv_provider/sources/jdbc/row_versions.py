"""Which rows of a PostgreSQL table were written since an older snapshot, as their `xmin` shows.

    since   100:105:100,103     transactions below 100 had ended; of the others some had, and some were still open
    now     140:141:140
    rows    whose xmin is at least 100

Each version of a row has the number of the transaction that wrote it, in `xmin`. A row whose writer is older than every
transaction that was open at `since` was there at `since`, and is in main. All others are read, also those that main has
already: which of the writers between 100 and 105 had ended cannot be decided row by row, because a savepoint writes
under a number of its own, which no snapshot mentions.

`xmin` has the lowest 32 bits of the number. The row is taken for the newest writer with these bits, so a very old row
may be read once more, and none is missed. What changes rows without writing them changes `JdbcFrontier.relation`:
TRUNCATE and everything that rewrites the table (it gets another file), a partition that is attached, ADD COLUMN …
DEFAULT, ALTER TYPE of an enum. After a restart or a failover, numbers of transactions that were lost may have been used
again, so everything is compared.
"""

from __future__ import annotations

from airflow_mv_provider.sources.jdbc.frontier import JdbcFrontier
from airflow_mv_provider.sources.jdbc.postgres_types import INNER

_NUM_XMINS = 1 << 32

TABLE = f"""
WITH RECURSIVE part (oid) AS (
  SELECT %(table)s::regclass::oid UNION SELECT inhrelid FROM pg_inherits JOIN part ON inhparent = part.oid
), col AS (
  SELECT a.*, t.typtype, t.typname, t.typelem <> 0 AND t.typcategory = 'A' AS is_array, t.typnamespace
  FROM pg_attribute AS a JOIN part ON attrelid = part.oid
  JOIN pg_type AS d ON d.oid = atttypid
  JOIN pg_type AS t ON t.oid = CASE WHEN d.typtype = 'd' THEN d.typbasetype ELSE d.oid END
  WHERE attnum > 0 AND NOT attisdropped
), made_of (root, oid) AS (
  SELECT atttypid, atttypid FROM col
  UNION {INNER}
)
SELECT md5(concat_ws(' ',
         (SELECT string_agg(oid || ':' || coalesce(pg_relation_filenode(oid), 0), ',' ORDER BY oid) FROM part),
         (SELECT string_agg(concat_ws(':', attrelid, attnum, attname, atttypid, atttypmod, attmissingval::text,
            (SELECT string_agg(enumlabel, ',' ORDER BY enumtypid, enumsortorder)
               FROM pg_enum JOIN made_of ON made_of.oid = enumtypid WHERE root = atttypid)),
            ',' ORDER BY attrelid, attnum) FROM col))),
       (SELECT bool_and(relkind = 'p' OR (relkind IN ('r', 'm') AND amname = 'heap'))
          FROM part JOIN pg_class AS c USING (oid) LEFT JOIN pg_am AS am ON am.oid = relam),
       (SELECT string_agg(attname, ', ' ORDER BY attnum) FROM col
         WHERE typtype NOT IN ('b', 'e', 'r', 'm') OR typname ~ '^_?(reg|money|aclitem)'
            OR (is_array AND typnamespace <> 'pg_catalog'::regnamespace) OR attgenerated = 'v'),
       has_column_privilege(%(table)s::regclass::oid, 'xmin', 'SELECT')
"""  # nosec B608  # of constants
"""Answers: `JdbcFrontier.relation`; whether all its parts have an `xmin`; columns whose values depend on more than the
row; whether the login may read `xmin`. PostgreSQL 13 or newer."""

UNIQUE = """
SELECT EXISTS (
  SELECT FROM pg_index JOIN pg_class AS c ON c.oid = indrelid
  WHERE indrelid = %(table)s::regclass AND indisunique AND indisvalid AND indpred IS NULL AND indexprs IS NULL
    AND (relkind = 'p' OR NOT EXISTS (SELECT FROM pg_inherits WHERE inhparent = c.oid))
    AND ARRAY(SELECT attname::text FROM unnest(indkey) WITH ORDINALITY AS part (attnum, n)
                JOIN pg_attribute AS a ON attrelid = indrelid AND a.attnum = part.attnum WHERE n <= indnkeyatts)
        <@ %(columns)s::text[])
"""
"""Answers whether a unique index, of the whole table, has no other columns than these."""


def obstacle_between(since: JdbcFrontier, until: JdbcFrontier, *, is_by_xmin: bool) -> str | None:
    """Return why the rows written between two states of one database cannot be found; None if they can."""
    (then, its_past), (now, past) = (each.token.partition(" ")[::2] for each in (since, until))
    if past != its_past:
        return "the server was started again since the last publish, or another one took its place"
    if not is_by_xmin:
        return None
    if since.relation is None or until.relation is None:
        return "the last publish did not record which table it read"
    if since.relation != until.relation:
        return "the table was truncated, rewritten, altered or made again since the last publish"
    if bounds(now)[1] - bounds(then)[0] >= _NUM_XMINS:
        return f"more than {_NUM_XMINS:,} transactions have begun since the oldest that was open at the last publish"
    return None


def written_since(then: str, now: str) -> str:
    """Return the condition that a row was written by a transaction that may not have ended at the snapshot `then`.

    now : the snapshot that is read, or a later one
    """
    (oldest, _), (_, following) = bounds(then), bounds(now)
    # How long before `following` its writer began, at the earliest.
    age = f"(({following % _NUM_XMINS} - mv_source.xmin::text::int8 + {_NUM_XMINS}) % {_NUM_XMINS})"
    return f"{age} <= {following - oldest}"


def bounds(snapshot: str) -> tuple[int, int]:
    """Return the oldest transaction that was open, and the first one that had not begun, of a snapshot's text."""
    oldest, following, _ = snapshot.split(":")
    return int(oldest), int(following)
