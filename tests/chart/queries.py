"""Prints every query of the dashboard and the alerts as one JSON array."""

import json

import support

print(json.dumps(list(support.queries()), indent=1))
