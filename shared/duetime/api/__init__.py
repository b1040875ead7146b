"""The HTTP API: routes, schemas, problems. Transport is the event of an API Gateway HTTP API, format 2.0."""
