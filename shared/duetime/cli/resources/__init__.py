"""The commands for what the API has, one module per resource."""
