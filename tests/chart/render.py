"""Renders the chart as a release with files of values; prints its objects and notes as JSON."""

import json
import sys

import support

release, *files = sys.argv[1:]
values = support.given(files)
print(
    json.dumps(
        {"objects": support.objects(support.render(*values, release=release)), "notes": support.notes(release, *values)}
    )
)
