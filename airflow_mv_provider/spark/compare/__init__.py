"""Comparison of rows by hashes; no other package compares rows. What finds the differences writes them as corrections.

hashing           the hash of a row
totals            the number of rows and two sums of their hashes, which prove that two sets of rows are equal
fingerprints      a hint which rows main has, kept from the last publish
whole             all rows of both sides: by totals, by fingerprints, else by a join
feed              changes that a source lists, or rows that came or changed
corrections       what turns one side into the other, key by key
recorded_changes  the written ones: measured, verified, without their deletes
keys              keys and partition values that main cannot have
"""
