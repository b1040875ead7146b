"""Celery beat with RedBeat on Redis, and two Celery workers with gevent. Tasks are acknowledged late."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import urllib3
from celery import Celery
from celery.schedules import crontab
from redbeat import RedBeatSchedulerEntry

_CONNECTIONS = 50
app = Celery("celery_redbeat", broker=os.environ["PEER_STORE"])
app.conf.update(
    task_ignore_result=True,
    task_acks_late=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 30, "max_connections": 4 * _CONNECTIONS},
    redbeat_redis_url=os.environ["PEER_STORE"],
    redbeat_redis_options={},
    redbeat_lock_timeout=30,  # beat sends all that is due before it renews the lock, and ends when that is lost
    beat_max_loop_interval=1,
    worker_hijack_root_logger=False,
)
_pool = urllib3.PoolManager(maxsize=_CONNECTIONS)


@app.task(name="fire", max_retries=2, autoretry_for=(Exception,))  # type: ignore[untyped-decorator]  # not installed here
def fire(url: str, n: int) -> None:
    response = _pool.request("POST", f"{url}s{n}", json={"n": n})
    if response.status != 200:
        raise RuntimeError(response.status)


def create(number: int, url: str) -> None:
    for n in range(number):
        RedBeatSchedulerEntry(f"s{n}", "fire", crontab(), args=(url, n), app=app).save()


def work() -> None:
    celery = [str(Path(sys.executable).with_name("celery")), "-A", "celery_redbeat"]
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "-l", "ERROR"]
    commands = [[*celery, "beat", "-S", "redbeat.RedBeatScheduler", "-l", "ERROR"]]
    commands += [
        [*celery, "worker", "-P", "gevent", "-c", str(_CONNECTIONS), *quiet, "-n", f"w{number}@%h"]
        for number in range(2)
    ]
    processes = [subprocess.Popen(command) for command in commands]

    def stop(*_: object) -> None:
        for process in processes:
            process.terminate()

    signal.signal(signal.SIGTERM, stop)
    for process in processes:
        process.wait()


if __name__ == "__main__":
    create(int(sys.argv[2]), sys.argv[3]) if sys.argv[1] == "create" else work()
