"""Escalations: the timer that tells another URL of a failure (docs/decisions/0045-escalations.md). Pure."""

from __future__ import annotations

from dataclasses import replace

from duetime.domain.events import failed_event
from duetime.domain.ids import escalation_shard_hash, escalation_timer_id
from duetime.domain.outcomes import Outcome
from duetime.domain.retry import DEFAULT_RETRY_POLICY, policy_in_force
from duetime.domain.shards import shard_hash
from duetime.domain.timers import Timer, TimerContent, TimerState, content_digest


def escalated(outcome: Outcome) -> Outcome:
    """Return ``outcome``, whose state is FAILED, with the timer that escalates it, if the policy asks for that.

    The failure of an escalation is not escalated.
    """
    timer, failure = outcome.timer, outcome.failure
    assert failure is not None
    url = policy_in_force(timer.content.retry_policy_json, DEFAULT_RETRY_POLICY).escalate_url
    if url is None or escalation_shard_hash(timer.timer_id) is not None:
        return outcome
    escalation = _escalation(outcome, url)
    return replace(outcome, escalation=escalation, failure=replace(failure, escalation_id=escalation.timer_id))


def _escalation(outcome: Outcome, url: str) -> Timer:
    """Return a timer that is due at once. Its payload is the event of the failure, with the payload of what failed.

    Headers are not sent to another URL: they may be the credentials for the first one.
    """
    timer, event = outcome.timer, failed_event(outcome)
    payload_json = "null" if timer.content.payload_json is None else timer.content.payload_json
    content = TimerContent(
        execute_at=event.at,
        callback_url=url,
        payload_json=f'{event.to_json()[:-1]},"payload":{payload_json}}}',
        callback_timeout_seconds=timer.content.callback_timeout_seconds,
        correlation_id=timer.content.correlation_id,
        tags=timer.content.tags,
    )
    return Timer(
        namespace=timer.namespace,
        timer_id=escalation_timer_id(shard_hash(timer.timer_id), event.event_id),
        shard_id=timer.shard_id,
        content=content,
        digest=content_digest(content),
        state=TimerState.SCHEDULED,
        revision=1,
        firing_id=str(event.event_id),
        attempts=0,
        next_attempt_at=content.execute_at,
        created_at=event.at,
        updated_at=event.at,
    )
