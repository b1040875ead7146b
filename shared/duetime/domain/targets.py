"""Targets beside HTTP: ARNs of what takes a message on AWS. One is stored where else a callback URL is. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from duetime.domain.errors import PayloadTooLarge

MAX_ARN_CHARACTERS: Final = 512
MAX_TARGET_BODY_BYTES: Final = 248 * 1024
"""Of a payload. SNS and Step Functions take 256 KiB in all: the rest is for what Duetime adds."""
MAX_ALLOWED: Final = 50

_PREFIX = "arn:"
_DOMAINS = {"aws": "amazonaws.com", "aws-us-gov": "amazonaws.com", "aws-cn": "amazonaws.com.cn"}
_ARN = re.compile(r"arn:(aws|aws-us-gov|aws-cn):([a-z]+):([a-z0-9-]{1,32}):([0-9]{12}):(.+)", re.ASCII)
_PATTERN = re.compile(
    r"arn:(aws|aws-us-gov|aws-cn):(sqs|sns|events|lambda|states):[a-z0-9-]+:[0-9]{12}:(?:[\w.:/$-]+\*?|\*)", re.ASCII
)


class Service(StrEnum):
    """Services that take messages, by their names in ARNs, which are those in host names, too."""

    SQS = "sqs"
    SNS = "sns"
    EVENTBRIDGE = "events"
    LAMBDA = "lambda"
    STEP_FUNCTIONS = "states"


# Names as the API references of the services have them.
_RESOURCES = {
    Service.SQS: re.compile(r"[\w-]{1,80}(?:\.fifo)?", re.ASCII),
    Service.SNS: re.compile(r"[\w-]{1,256}(?:\.fifo)?", re.ASCII),
    Service.EVENTBRIDGE: re.compile(r"event-bus/[\w./-]{1,256}", re.ASCII),
    Service.LAMBDA: re.compile(r"function:[\w-]{1,64}(?::(?:\$LATEST|[\w-]{1,128}))?", re.ASCII),
    Service.STEP_FUNCTIONS: re.compile(r"stateMachine:[\w-]{1,80}(?::[\w-]{1,80})?", re.ASCII),
}


@dataclass(frozen=True, slots=True)
class Target:
    """``host`` is that of the service's public endpoint; ``resource`` what follows the account in the ARN."""

    arn: str
    service: Service
    region: str
    account: str
    resource: str
    host: str

    @property
    def is_fifo(self) -> bool:
        return self.resource.endswith(".fifo")


def check_target_body(field: str, json_text: str) -> None:
    """Raise ``PayloadTooLarge`` for more than the target takes."""
    if len(json_text.encode(errors="surrogatepass")) > MAX_TARGET_BODY_BYTES:
        raise PayloadTooLarge(field, f"must have at most {MAX_TARGET_BODY_BYTES} bytes of JSON with a target")


def is_arn(url: str) -> bool:
    """Tell whether a stored callback URL is the ARN of a target. No URL that the API takes begins like one."""
    return url.startswith(_PREFIX)


def parse_arn(text: str) -> Target:
    """Return the target of an ARN. Raises ``ValueError`` with a message that completes "<field> ..."."""
    match = _ARN.fullmatch(text) if len(text) <= MAX_ARN_CHARACTERS else None
    if match is not None and match[2] in _RESOURCES:
        service = Service(match[2])
        if _RESOURCES[service].fullmatch(match[5]):
            host = f"{service}.{match[3]}.{_DOMAINS[match[1]]}"
            return Target(text, service, match[3], match[4], match[5], host)
    raise ValueError(
        "must be the ARN of an SQS queue, an SNS topic, an EventBridge bus, a Lambda function or a Step Functions"
        " state machine"
    )


def parse_allowed(text: str) -> tuple[str, ...]:
    """Parse ARNs, comma separated; a ``*`` at the end is any text. Raises ``ValueError`` that shows no item."""
    items = tuple(item.strip() for item in text.split(",")) if text.strip() else ()
    if len(items) > MAX_ALLOWED:
        raise ValueError(f"must have at most {MAX_ALLOWED} items")
    if not all(_PATTERN.fullmatch(item) for item in items):
        raise ValueError(
            "must be ARNs of targets (SQS, SNS, EventBridge, Lambda, Step Functions), comma separated, with * at the"
            " end alone"
        )
    return items


def is_allowed(arn: str, allowed: Iterable[str]) -> bool:
    """Tell whether ``arn`` is one of ``allowed``, as ``parse_allowed`` returns them."""
    return any(arn.startswith(each[:-1]) if each.endswith("*") else arn == each for each in allowed)
