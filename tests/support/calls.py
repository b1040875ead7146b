from duetime.testing.contract.call_builders import *  # noqa: F403
