from duetime.testing.contract.call_steps import *  # noqa: F403
