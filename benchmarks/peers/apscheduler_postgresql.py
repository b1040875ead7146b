"""APScheduler 4 on PostgreSQL: its newest version, which is a pre-release.

Every schedule's lost occurrences are made up for (``CoalescePolicy.all``), and none is too late.
"""

import asyncio
import os
import sys

import httpx
from apscheduler import AsyncScheduler, CoalescePolicy, ConflictPolicy
from apscheduler.datastores.sqlalchemy import SQLAlchemyDataStore
from apscheduler.triggers.cron import CronTrigger
from sqlalchemy.ext.asyncio import create_async_engine

_CONNECTIONS = 100
_client = httpx.AsyncClient(limits=httpx.Limits(max_connections=_CONNECTIONS, max_keepalive_connections=_CONNECTIONS))


async def fire(url: str, n: int) -> None:
    response = await _client.post(f"{url}s{n}", json={"n": n})
    response.raise_for_status()


async def main(command: str, number: int, url: str) -> None:
    engine = create_async_engine(os.environ["PEER_STORE"].replace("postgresql://", "postgresql+psycopg://"))
    async with AsyncScheduler(SQLAlchemyDataStore(engine), max_concurrent_jobs=_CONNECTIONS) as scheduler:
        await scheduler.configure_task(fire, misfire_grace_time=None, max_running_jobs=_CONNECTIONS)
        if command == "worker":
            await scheduler.run_until_stopped()
        for n in range(number if command == "create" else 0):
            await scheduler.add_schedule(
                fire,
                CronTrigger.from_crontab("* * * * *", timezone="UTC"),
                id=f"s{n}",
                args=(url, n),
                coalesce=CoalescePolicy.all,
                conflict_policy=ConflictPolicy.replace,
            )


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), sys.argv[3]))
