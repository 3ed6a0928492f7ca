"""Comparison of rows by hashes, digests and corrections; no other package compares rows.

    desired ─┐  one row per key (the seal checked it)
             ├─▶ digests by buckets of keys: which differ? ─▶ corrections: key by key inside those buckets
    main  ───┘  arbitrary rows, duplicates and NULL keys included

A row lies in the bucket of its key's hash, so equal keys lie in the same bucket on both sides. The modules:

    hashing           the hash of a row
    digest_algebra    digests of many rows by buckets of keys; joined, added, of larger buckets
    digests           digests as they are stored, and main's of the last publish
    buckets           where two sides differ; large_buckets compares few, large ones first
    corrections       what turns one side into the other; changes computes and stores them chunk by chunk
    recorded_changes  the stored ones, read back and verified
    key_ranges        which keys they have, by which Delta skips main's files
    feed              corrections and digests from a source's change feed instead of all its rows
    keys              keys and partition values that main cannot have
    frozen            partitions that are compared and never corrected
"""
