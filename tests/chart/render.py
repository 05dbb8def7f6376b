"""Renders the chart with a file of values; prints its objects as a JSON array."""

import json
import sys

import support

print(json.dumps(support.objects(support.render("--values", sys.argv[1]))))
