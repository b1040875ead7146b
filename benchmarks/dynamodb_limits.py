"""Where DynamoDB's limits, or a poller's processor, make timers late: a model in virtual time that runs the engine.

    python -m benchmarks.dynamodb_limits [RATE ...] [--shards 16] [--pollers 1] [--seconds 5] [--table-units N]

Each ``RATE`` of creates a second is a run: timers are created for ``--seconds``, each due two seconds later. Refused
creates (429) are not repeated. tests/support/dynamodb_model.py says what the model leaves out.
"""

from __future__ import annotations

import logging
from math import inf

from benchmarks.figures import parser, show
from tests.support.dynamodb_model import Limits, simulate


def main() -> None:
    options = parser(__doc__)
    options.add_argument("rates", nargs="*", type=float, metavar="RATE", default=[2000, 2800, 3200, 4400])
    options.add_argument("--shards", type=int, default=16)
    options.add_argument("--pollers", type=int, default=1)
    options.add_argument("--seconds", type=float, default=5)
    options.add_argument("--table-units", type=float, default=inf, help="write units a second of the table")
    given = options.parse_args()
    logging.disable(logging.CRITICAL)  # of pollers that tell of throttling
    limits = Limits(table_units=given.table_units)
    for rate in given.rates:
        found = simulate(rate=rate, seconds=given.seconds, shards=given.shards, pollers=given.pollers, limits=limits)
        lags = sorted(found.lags)
        show(
            f"{rate:,.0f}/s, {given.shards} shards, {given.pollers} pollers",
            created=found.created,
            refused=found.refused,
            ends_put_off=found.put_off,
            lag_p50_ms=lags[len(lags) // 2] * 1000,
            lag_p99_ms=lags[len(lags) * 99 // 100] * 1000,
            ended_s=found.ended_seconds,
        )


if __name__ == "__main__":
    main()
