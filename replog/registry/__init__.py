"""A registry of schemas of our own, kept in a topic, behind Confluent's REST interface (docs/REGISTRY.md)."""

from replog.registry.server import RegistryServer, serve

__all__ = ["RegistryServer", "serve"]
