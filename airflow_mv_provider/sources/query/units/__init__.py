"""How a query over Delta tables follows its inputs: only what their changes can have touched is computed again.

Some of a query's columns are its unit columns: its rows with equal values in them, a unit, depend only on input rows
that belong to this unit. `shape` finds them, `affected` returns the units that changed rows of the inputs belong to,
and `restriction` what of the inputs is needed to compute some units. Nothing here asks Spark: `sources.query.following`
does, and has Spark check what was understood.
"""
