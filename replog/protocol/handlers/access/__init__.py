"""Logins of clients, users, access control lists, quotas."""
