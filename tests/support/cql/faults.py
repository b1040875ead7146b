"""What can go wrong between a client and the cluster, and what the driver then raises."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum

from cassandra import ConsistencyLevel, OperationTimedOut, ReadTimeout, Unavailable, WriteTimeout, WriteType
from cassandra.cluster import NoHostAvailable


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """A request that reaches the model. ``number`` counts from 1 over all sessions; ``tables`` are those
    that it names; ``kind`` is schema, prepare, read, serial_read, write, cas, batch or cas_batch."""

    number: int
    kind: str
    cql: str
    tables: tuple[str, ...] = ()

    @property
    def is_write(self) -> bool:
        return self.kind in ("write", "cas", "batch", "cas_batch")

    @property
    def is_cas(self) -> bool:
        return self.kind in ("cas", "cas_batch")


class Fault(Enum):
    LOST_BEFORE = "the request never arrived"
    LOST_AFTER = "it was carried out and its answer was lost"
    LATE = "it is under way for so long that nobody waits for it, and arrives in the end"
    TIMED_OUT = "it was carried out and the coordinator waited in vain for the replicas' word"
    UNFINISHED = "a lightweight transaction was accepted and not committed: the next one of the partition commits it"
    PARTIAL = "a batch has reached its first partition; a logged one reaches the others when it is replayed"
    UNAVAILABLE = "too few replicas are alive; nothing was carried out"
    NO_HOST = "no node can be reached; nothing was carried out"

    @property
    def is_carried_out(self) -> bool:
        return self in (Fault.LOST_AFTER, Fault.TIMED_OUT, Fault.UNFINISHED, Fault.PARTIAL)

    def error(self, request: Request) -> Exception:
        """What the driver raises."""
        if self is Fault.UNAVAILABLE:
            return Unavailable(
                "Cannot achieve consistency level QUORUM",
                consistency=ConsistencyLevel.QUORUM,
                required_replicas=2,
                alive_replicas=1,
            )
        if self is Fault.NO_HOST:
            return NoHostAvailable("Unable to complete the operation against any hosts", {})
        if self in (Fault.LOST_BEFORE, Fault.LOST_AFTER, Fault.LATE):
            return OperationTimedOut(errors={"model": "Client request timeout"}, last_host="model")
        facts = {"consistency": ConsistencyLevel.QUORUM, "required_responses": 2, "received_responses": 1}
        if not request.is_write:
            return ReadTimeout("Coordinator node timed out waiting for replica nodes' responses", **facts)
        kinds = {"cas": WriteType.CAS, "cas_batch": WriteType.CAS, "batch": WriteType.BATCH}
        write_type = kinds.get(request.kind, WriteType.SIMPLE)
        return WriteTimeout(
            "Coordinator node timed out waiting for replica nodes' responses", write_type=write_type, **facts
        )


FaultPlan = Callable[[Request], Fault | None]
"""Asked once per request, within the model's lock."""
