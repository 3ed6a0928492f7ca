"""Records in Protobuf, decoded by Python's own library, in Spark's Python workers.

Spark's `from_protobuf` is not used: of an unknown field, an unknown value of an enum and a field that is not set it
makes NULL, or nothing, in silence.
"""
