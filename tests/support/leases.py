from duetime.testing.contract.steps import claim_shard  # noqa: F401
