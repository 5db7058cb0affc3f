"""What the tests of metrics share: samples by name and labels, and a scrape over HTTP."""

from __future__ import annotations

import http.client

from prometheus_client import CollectorRegistry
from prometheus_client.parser import text_string_to_metric_families


def samples(registry: CollectorRegistry) -> dict[str, float]:
    """`name{label="value",...}` -> value, of everything the registry has now."""
    return _flat(registry.collect())


def parsed(text: str) -> dict[str, float]:
    """The same of a scraped page."""
    return _flat(text_string_to_metric_families(text))


def _flat(families: object) -> dict[str, float]:
    found = {}
    for family in families:  # type: ignore[attr-defined]
        for sample in family.samples:
            labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
            found[f"{sample.name}{{{labels}}}" if labels else sample.name] = sample.value
    return found


def scrape(address: str, path: str = "/metrics") -> tuple[int, str]:
    """(status, text); blocks, so call it in a thread where a loop has to answer."""
    connection = http.client.HTTPConnection(address, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read().decode()
    finally:
        connection.close()
