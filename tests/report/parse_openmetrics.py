"""Reads OpenMetrics text from standard input with the parser of prometheus_client. Exit status 77 where it is missing."""
import sys

try:
    from prometheus_client.openmetrics.parser import text_string_to_metric_families
except ImportError:
    sys.exit(77)

families = {f.name: f for f in text_string_to_metric_families(sys.stdin.read())}
expected = {"deepum_launches": "counter", "deepum_table_bytes": "gauge", "deepum_stalled_seconds": "counter",
            "deepum_copied_bytes": "counter", "deepum_fault_feed": "info"}
for name, kind in expected.items():
    assert families[name].type == kind, name
    assert families[name].documentation, name
assert families["deepum_stalled_seconds"].unit == "seconds"
assert families["deepum_launches"].samples[0].labels == {"arena": 'a"b\\c\nd'}
assert families["deepum_launches"].samples[0].value == 101
