from duetime.testing.contract.steps import *  # noqa: F403
