"""Alarms and the dashboard watch what is written, and the docs say of each alarm what to do and what it costs."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from duetime.cli.cost import counts
from duetime.runtime.emf import NAMESPACE, EmfReporter
from duetime.runtime.metrics import COUNTERS, DISTRIBUTIONS, GAUGES
from duetime.runtime.outbox_function import OutboxFunction
from scripts.aws_local import ROOT
from tests.aws.application import Template
from tests.support.clock import FakeClock
from tests.support.metrics import make_snapshot
from tests.support.outbox import FakeOutbox

FUNCTIONS = {"TimersApi", "ServiceCallsApi", "Poller", "Outbox"}
# As AWS documents them, by namespace: the metrics that are used here, and the dimension that they have.
AWS_METRICS = {
    "AWS/Lambda": ({"Errors", "Throttles", "ConcurrentExecutions", "IteratorAge"}, "FunctionName"),
    "AWS/ApiGateway": ({"Count", "4xx", "5xx", "Latency"}, "ApiId"),
    "AWS/SQS": ({"ApproximateNumberOfMessagesVisible"}, "QueueName"),
    "AWS/DynamoDB": (
        {
            "ConsumedReadCapacityUnits",
            "ConsumedWriteCapacityUnits",
            "ReadThrottleEvents",
            "WriteThrottleEvents",
            "WriteKeyRangeThroughputThrottleEvents",
        },
        "TableName",
    ),
}
USD_OF_AN_ALARMED_METRIC = 0.10
_ROW = re.compile(r"^\| `(\w+)` \| (.*) \| ([0-9.]+) \|$", re.MULTILINE)
_LINK = re.compile(r"\[([^]]+)\]\([^)]+\)")

Metric = tuple[str, str, dict[str, str]]
"""Namespace, name, and the dimensions' values as the names of parameters and resources."""


def alarms_of(template: Template) -> dict[str, dict[str, Any]]:
    return template.of_type("AWS::CloudWatch::Alarm")


def metrics_of(alarm: dict[str, Any]) -> list[Metric]:
    single = [each["MetricStat"]["Metric"] for each in alarm.get("Metrics", ()) if "MetricStat" in each]
    return [
        (
            metric["Namespace"],
            metric["MetricName"],
            {each["Name"]: _name(each["Value"]) for each in metric["Dimensions"]},
        )
        for metric in single or [alarm]
    ]


def _name(value: dict[str, Any]) -> str:
    name = value.get("Ref") or value["Fn::GetAtt"][0]
    assert isinstance(name, str)
    return name


def shown_on(template: Template) -> list[dict[str, Any]]:
    """The properties of the dashboard's widgets; ``${X}`` and ``${X.Y}`` are ``X``."""
    ((_, dashboard),) = template.of_type("AWS::CloudWatch::Dashboard").items()
    body = re.sub(r"\$\{([\w:]+)(\.\w+)?\}", r"\1", dashboard["DashboardBody"]["Fn::Sub"])
    return [widget["properties"] for widget in json.loads(body)["widgets"]]


def charted(template: Template) -> Iterator[Metric]:
    for widget in shown_on(template):
        for namespace, name, *dimensions in widget.get("metrics", ()):
            assert isinstance(dimensions.pop(), dict)
            yield namespace, name, dict(zip(dimensions[::2], dimensions[1::2], strict=True))


def written() -> dict[str, set[str]]:
    """By function, the metrics that it writes when everything happens."""
    lines: list[str] = []
    reporter = EmfReporter(lines.append, clock=FakeClock(), stage="any", function="any")
    counters: dict[str, Any] = {name: 1 for name in make_snapshot().counters if not name.startswith("outbox")}
    gauges = dict.fromkeys(make_snapshot().gauges, 1)
    reporter.report(make_snapshot(**counters, gauges=gauges, lags=[2.0], latencies=[1.0]))
    (directive,) = json.loads(lines[0])["_aws"]["CloudWatchMetrics"]
    swept: dict[str, object] = {}
    outbox = FakeOutbox()
    function = OutboxFunction(
        outbox,
        [],
        calls=outbox,
        clock=FakeClock(),
        report=swept.update,
        sweep_after_seconds=1,
        new_id=lambda: "any",
    )
    context = SimpleNamespace(aws_request_id="any", get_remaining_time_in_millis=lambda: 60_000)
    function({"detail-type": "Scheduled Event"}, context)
    # What an outbox without events does not count is tested with its function.
    outbox_metrics = swept.keys() | {"EventsPublished", "EventsRefused"}
    return {"Poller": {each["Name"] for each in directive["Metrics"]}, "Outbox": outbox_metrics}


def documented() -> dict[str, tuple[str, float]]:
    """The description and the dollars a month by alarm, as docs/deploy-aws.md has them; links are their texts."""
    text = (ROOT / "docs" / "deploy-aws.md").read_text().partition("\n## Alarms\n")[2].partition("\n## ")[0]
    return {name: (_LINK.sub(r"\1", said), float(price)) for name, said, price in _ROW.findall(text)}


def test_own_metrics_that_are_watched_are_written(template: Template) -> None:
    by_function = written()
    catalogue = {each.cloudwatch("") for each in (*COUNTERS, *GAUGES) if each.cloudwatch and not each.label}
    catalogue |= {each.cloudwatch for each in DISTRIBUTIONS if each.cloudwatch}
    assert catalogue <= by_function["Poller"]
    alarmed = [metric for alarm in alarms_of(template).values() for metric in metrics_of(alarm)]
    for namespace, name, dimensions in [*alarmed, *charted(template)]:
        if namespace == NAMESPACE:
            assert dimensions.keys() == {"Stage", "Function"}
            assert dimensions["Stage"] == "Stage"
            assert name in by_function[dimensions["Function"]], name
        else:
            names, dimension = AWS_METRICS[namespace]
            assert name in names
            assert dimensions.keys() == {dimension}
            assert dimensions[dimension] in template.translated["Resources"]


def test_every_metric_of_the_poller_is_on_the_dashboard(template: Template) -> None:
    charts = {name for namespace, name, _ in charted(template) if namespace == NAMESPACE}
    by_function = written()

    assert charts == by_function["Poller"] | by_function["Outbox"]


def test_what_raises_an_alarm_is_on_the_dashboard(template: Template) -> None:
    charts = {(namespace, name) for namespace, name, _ in charted(template)}
    (shown,) = [widget["alarms"] for widget in shown_on(template) if "alarms" in widget]

    assert set(shown) == alarms_of(template).keys()
    for alarm in alarms_of(template).values():
        assert {(namespace, name) for namespace, name, _ in metrics_of(alarm)} <= charts


@pytest.mark.parametrize(
    ("alarm", "metric", "functions"),
    [("FunctionsFail", "Errors", {"Poller", "Outbox"}), ("FunctionsThrottled", "Throttles", {"Poller"})],
)
def test_one_alarm_stands_for_all_functions_that_no_request_waits_for(
    template: Template, alarm: str, metric: str, functions: set[str]
) -> None:
    """Errors of the others are responses of the API, which ``ApiFails`` counts. An outbox that does not start raises
    ``EventsLate``."""
    watched = metrics_of(alarms_of(template)[alarm])

    assert {dimensions["FunctionName"] for _, _, dimensions in watched} == functions
    assert template.of_type("AWS::Lambda::Function").keys() == FUNCTIONS
    assert {name for _, name, _ in watched} == {metric}
    assert alarms_of(template)["EventsLate"]["TreatMissingData"] == "breaching"


def test_silence_is_noticed_within_two_minutes(template: Template) -> None:
    alarm = alarms_of(template)["PollerSilent"]
    heartbeats = {each.cloudwatch("") for each in GAUGES if each.is_heartbeat and each.cloudwatch}

    assert {name for _, name, _ in metrics_of(alarm)} == heartbeats
    assert (alarm["Statistic"], alarm["TreatMissingData"]) == ("SampleCount", "breaching")
    # While pollers sleep the watchdog tells of itself once a minute, and one start may be late.
    assert (alarm["Period"], alarm["EvaluationPeriods"]) == (60, 2)
    # Who has switched the schedule off need not be told of it again and again.
    assert alarm["ActionsEnabled"] == {"Fn::If": ["IsScheduled", True, False]}


def test_silence_of_others_is_no_alarm_but_of_those_that_always_write(template: Template) -> None:
    missing = {name for name, alarm in alarms_of(template).items() if alarm["TreatMissingData"] != "notBreaching"}

    assert missing == {"PollerSilent", "EventsLate"}


def test_every_alarm_tells_the_topic_if_there_is_one(template: Template) -> None:
    for alarm in alarms_of(template).values():
        assert alarm["AlarmActions"] == alarm["OKActions"]
        assert alarm["AlarmActions"]["Fn::If"][0] == "HasAlarmTopic"


def test_the_docs_say_of_every_alarm_what_it_says_itself_and_what_it_costs(template: Template) -> None:
    """Its description is the line of the runbook: who gets the mail has it, and `duetime doctor` shows it."""
    prices = {
        name: round(len(metrics_of(alarm)) * USD_OF_AN_ALARMED_METRIC, 2)
        for name, alarm in alarms_of(template).items()
    }
    text = (ROOT / "docs" / "deploy-aws.md").read_text()

    assert documented() == {
        name: (alarm["AlarmDescription"], prices[name]) for name, alarm in alarms_of(template).items()
    }
    assert f"${sum(prices.values()):.2f} a month" in text


def test_the_bill_has_all_alarms(template: Template) -> None:
    alarms = alarms_of(template).values()

    assert all(alarm.get("Period", 60) >= 60 for alarm in alarms)  # shorter ones cost three times as much
    assert sum(len(metrics_of(alarm)) for alarm in alarms) == counts.ALARMED_METRICS


def test_the_dashboard_is_made_when_it_is_wanted(template: Template) -> None:
    (dashboard,) = (
        each for each in template.translated["Resources"].values() if each["Type"] == "AWS::CloudWatch::Dashboard"
    )

    assert dashboard["Condition"] == template.source["Outputs"]["DashboardUrl"]["Condition"] == "HasDashboard"
    assert template.source["Parameters"]["MakeDashboard"]["Default"] == "false"
