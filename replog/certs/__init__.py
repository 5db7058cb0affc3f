"""Certificates of an authority of one's own, for brokers and clients of one cluster; needs the extra `replog[security]`."""
