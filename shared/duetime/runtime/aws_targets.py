"""Signs what goes to targets on AWS, with the credentials that boto3 would use."""

from __future__ import annotations

import os
from collections.abc import Mapping

from duetime.delivery.target_sender import Unsigned
from duetime.delivery.targets import AwsRequest
from duetime.domain.targets import Service, Target

_ENDPOINT = "AWS_ENDPOINT_URL"
_ENDPOINTS = {
    Service.SQS: f"{_ENDPOINT}_SQS",
    Service.SNS: f"{_ENDPOINT}_SNS",
    Service.EVENTBRIDGE: f"{_ENDPOINT}_EVENTBRIDGE",
    Service.LAMBDA: f"{_ENDPOINT}_LAMBDA",
    Service.STEP_FUNCTIONS: f"{_ENDPOINT}_SFN",
}
"""Variables of the AWS SDKs (https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html)."""


class SignedByBotocore:
    """``delivery.target_sender.Aws``: Signature Version 4. Finds credentials anew when they are about to end."""

    def __init__(self) -> None:
        """Contact nothing yet. Raises ``Unsigned`` without botocore."""
        try:
            from botocore.session import get_session
        except ImportError as error:
            raise Unsigned("targets need 'boto3', which is not installed: pip install 'duetime[dynamodb]'") from error
        self._session = get_session()

    def endpoint(self, target: Target) -> str:
        """Return that of the environment, as the AWS SDKs read it, or else the service's public one."""
        given = os.environ.get(_ENDPOINTS[target.service]) or os.environ.get(_ENDPOINT)
        return given.rstrip("/") if given else f"https://{target.host}"

    def sign(self, request: AwsRequest) -> Mapping[str, str]:
        from botocore.auth import SigV4Auth
        from botocore.awsrequest import AWSRequest
        from botocore.exceptions import BotoCoreError

        try:
            found = self._session.get_credentials()
            credentials = None if found is None else found.get_frozen_credentials()
        except BotoCoreError as error:
            raise Unsigned(f"AWS credentials cannot be obtained: {type(error).__name__}") from None
        if credentials is None:
            raise Unsigned("there are no AWS credentials")
        signed = AWSRequest("POST", request.url, dict(request.headers), request.body)
        SigV4Auth(credentials, request.service, request.region).add_auth(signed)
        return dict(signed.headers.items())
