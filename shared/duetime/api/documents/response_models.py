"""The models of responses, by name. Imported for the document and the tests: building them takes time."""

from __future__ import annotations

from typing import Final

from pydantic import BaseModel

from duetime.api import answers
from duetime.api.service_calls import responses as of_service_calls
from duetime.api.webhooks import responses as of_webhooks

RESPONSE_MODELS: Final[dict[str, type[BaseModel]]] = {
    name: model
    for module in (answers, of_service_calls, of_webhooks)
    for name, model in vars(module).items()
    if isinstance(model, type) and issubclass(model, answers.Answer)
}
