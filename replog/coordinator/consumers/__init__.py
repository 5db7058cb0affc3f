"""Groups of KIP-848: the coordinator assigns, members are moved one by one."""
