from duetime.testing.contract.builders import *  # noqa: F403
