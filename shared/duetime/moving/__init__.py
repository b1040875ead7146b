"""Moving all that a store holds into another: files of JSON Lines, written from one and loaded into the other.

docs/transfer.md describes the format and the steps of a move.
"""
