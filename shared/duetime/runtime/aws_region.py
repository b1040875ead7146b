"""The AWS region of this process."""

from __future__ import annotations

import os


def use_aws_region() -> None:
    """Have boto3 use ``AWS_REGION``, which the AWS CLI reads first; boto3 reads ``AWS_DEFAULT_REGION`` alone."""
    if region := os.environ.get("AWS_REGION"):
        os.environ["AWS_DEFAULT_REGION"] = region
