"""Commands that bring schedules from elsewhere: ``duetime schedules import``, ``duetime apply``."""
