"""`SyncAdmin`: `Admin` without async."""

from __future__ import annotations

from replog.client.admin.admin import Admin
from replog.client.sync.loop_thread import SyncClient, made_like, without_async


class SyncAdmin(SyncClient[Admin]):
    """`Admin` without async; arguments and errors are the same."""

    @made_like(Admin)
    def __init__(self, client: Admin) -> None:
        super().__init__(client)

    def close(self) -> None:
        """Closes the connections, as `Admin.close` does.  Calling it again does nothing."""
        self._end(self._client.close)

    create_topics = without_async(Admin.create_topics)
    create_topic = without_async(Admin.create_topic)
    fork_topic = without_async(Admin.fork_topic)
    delete_topics = without_async(Admin.delete_topics)
    delete_topic = without_async(Admin.delete_topic)
    list_topics = without_async(Admin.list_topics)
    describe_topics = without_async(Admin.describe_topics)
    alter_topic_configs = without_async(Admin.alter_topic_configs)
    describe_cluster = without_async(Admin.describe_cluster)
    describe_node = without_async(Admin.describe_node)
    describe_node_configs = without_async(Admin.describe_node_configs)
    describe_log_dirs = without_async(Admin.describe_log_dirs)
    move_replica = without_async(Admin.move_replica)
    describe_partition = without_async(Admin.describe_partition)
    describe_reassignments = without_async(Admin.describe_reassignments)
    list_offsets = without_async(Admin.list_offsets)
    delete_records = without_async(Admin.delete_records)
    epoch_ends = without_async(Admin.epoch_ends)
    wait_until_ready = without_async(Admin.wait_until_ready)
    wait_until_in_sync = without_async(Admin.wait_until_in_sync)
    wait_for_topic = without_async(Admin.wait_for_topic)
    alter_configs = without_async(Admin.alter_configs)
    describe_configs = without_async(Admin.describe_configs)
    create_partitions = without_async(Admin.create_partitions)
    elect_leaders = without_async(Admin.elect_leaders)
    reassign_partitions = without_async(Admin.reassign_partitions)
    list_reassignments = without_async(Admin.list_reassignments)
    drain_broker = without_async(Admin.drain_broker)
    unregister_broker = without_async(Admin.unregister_broker)
    describe_features = without_async(Admin.describe_features)
    update_features = without_async(Admin.update_features)
    describe_quotas = without_async(Admin.describe_quotas)
    alter_quotas = without_async(Admin.alter_quotas)
    describe_quorum = without_async(Admin.describe_quorum)
    add_voter = without_async(Admin.add_voter)
    remove_voter = without_async(Admin.remove_voter)
    list_users = without_async(Admin.list_users)
    set_password = without_async(Admin.set_password)
    remove_user = without_async(Admin.remove_user)
    create_delegation_token = without_async(Admin.create_delegation_token)
    renew_delegation_token = without_async(Admin.renew_delegation_token)
    expire_delegation_token = without_async(Admin.expire_delegation_token)
    describe_delegation_tokens = without_async(Admin.describe_delegation_tokens)
    list_groups = without_async(Admin.list_groups)
    describe_groups = without_async(Admin.describe_groups)
    group_offsets = without_async(Admin.group_offsets)
    group_lag = without_async(Admin.group_lag)
    alter_group_offsets = without_async(Admin.alter_group_offsets)
    delete_groups = without_async(Admin.delete_groups)
    delete_group_offsets = without_async(Admin.delete_group_offsets)
    list_transactions = without_async(Admin.list_transactions)
    describe_transactions = without_async(Admin.describe_transactions)
    find_hanging_transactions = without_async(Admin.find_hanging_transactions)
    abort_transaction = without_async(Admin.abort_transaction)
    abort_hanging_transaction = without_async(Admin.abort_hanging_transaction)
    describe_acls = without_async(Admin.describe_acls)
    create_acls = without_async(Admin.create_acls)
    delete_acls = without_async(Admin.delete_acls)
