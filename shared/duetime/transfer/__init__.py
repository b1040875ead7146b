"""Transfers all that a store holds to another one, through a file of JSON Lines.

docs/transfer.md describes the format and the steps.
"""
