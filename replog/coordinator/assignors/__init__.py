"""Which member of a group reads which partition: pure functions of members, subscriptions and topics."""
