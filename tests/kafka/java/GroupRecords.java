import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.OptionalInt;
import java.util.OptionalLong;
import java.util.Set;
import java.util.TreeSet;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocol;
import org.apache.kafka.common.message.JoinGroupRequestData.JoinGroupRequestProtocolCollection;
import org.apache.kafka.common.utils.LogContext;
import org.apache.kafka.common.utils.Time;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordHelpers;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.OffsetAndMetadata;
import org.apache.kafka.coordinator.group.classic.ClassicGroup;
import org.apache.kafka.coordinator.group.classic.ClassicGroupMember;
import org.apache.kafka.coordinator.group.classic.ClassicGroupState;
import org.apache.kafka.coordinator.group.generated.ConsumerGroupMemberMetadataValue;
import org.apache.kafka.coordinator.group.generated.CoordinatorRecordJsonConverters;
import org.apache.kafka.coordinator.group.modern.MemberState;
import org.apache.kafka.coordinator.group.modern.consumer.ConsumerGroupMember;
import org.apache.kafka.coordinator.group.modern.consumer.ResolvedRegularExpression;

/**
 * Records of Kafka's topic of consumer groups.
 *
 * <p>With a file: reads its records with Kafka's own classes, and prints each anew. A line of the file: key and value in
 * hex, "-" for no value. A line of the output: the same, then the key as JSON, a tab, the value as JSON.
 *
 * <p>Without: prints those that Kafka's coordinator makes: a name, key and value in hex.
 */
public class GroupRecords {
    private static final GroupCoordinatorRecordSerde SERDE = new GroupCoordinatorRecordSerde();
    private static final Uuid TOPIC = new Uuid(0x0102030405060708L, 0x1112131415161718L);

    public static void main(String[] arguments) throws Exception {
        StringBuilder output = new StringBuilder();
        if (arguments.length == 0) {
            made().forEach((name, record) -> output.append(name).append(' ').append(hex(record)).append('\n'));
        } else {
            for (String line : Files.readAllLines(Path.of(arguments[0]))) {
                output.append(readAnew(line)).append('\n');
            }
        }
        System.out.print(output);
    }

    private static String readAnew(String line) {
        String[] words = line.split(" ");
        CoordinatorRecord record = SERDE.deserialize(bytes(words[0]), words[1].equals("-") ? null : bytes(words[1]));
        Object value = record.value() == null
                ? null
                : CoordinatorRecordJsonConverters.writeRecordValueAsJson(
                        record.value().message(), record.value().version());
        return hex(record) + " " + CoordinatorRecordJsonConverters.writeRecordKeyAsJson(record.key()) + "\t" + value;
    }

    private static Map<String, CoordinatorRecord> made() {
        Map<String, CoordinatorRecord> made = new LinkedHashMap<>();
        Map<Uuid, Set<Integer>> partitions = Map.of(TOPIC, new TreeSet<>(List.of(0, 7)));
        ConsumerGroupMember member = new ConsumerGroupMember.Builder("m1")
                .setInstanceId("i1")
                .setRackId("r1")
                .setClientId("c1")
                .setClientHost("/127.0.0.1")
                .setRebalanceTimeoutMs(45000)
                .setSubscribedTopicNames(List.of("flights", "planes"))
                .setSubscribedTopicRegex("fl.*")
                .setServerAssignorName("uniform")
                .setState(MemberState.UNREVOKED_PARTITIONS)
                .setMemberEpoch(5)
                .setPreviousMemberEpoch(4)
                .setAssignedPartitions(partitions)
                .setPartitionsPendingRevocation(partitions)
                .build();
        ConsumerGroupMember classic = new ConsumerGroupMember.Builder("m2")
                .setClientId("c2")
                .setClientHost("/::1")
                .setSubscribedTopicNames(List.of("flights"))
                .setClassicMemberMetadata(new ConsumerGroupMemberMetadataValue.ClassicMemberMetadata()
                        .setSessionTimeoutMs(10000)
                        .setSupportedProtocols(List.of(new ConsumerGroupMemberMetadataValue.ClassicProtocol()
                                .setName("range")
                                .setMetadata(new byte[] {0, 1, 2}))))
                .build();
        made.put("offset", offset(OptionalInt.of(3), "note", OptionalLong.empty(), TOPIC));
        made.put("offset-without-id", offset(OptionalInt.empty(), "", OptionalLong.empty(), Uuid.ZERO_UUID));
        made.put("offset-with-expiry", offset(OptionalInt.of(3), "note", OptionalLong.of(1700000009999L), TOPIC));
        made.put("offset-gone", GroupCoordinatorRecordHelpers.newOffsetCommitTombstoneRecord("g", "flights", 7));
        made.put("classic", classicGroup());
        made.put("classic-gone", GroupCoordinatorRecordHelpers.newGroupMetadataTombstoneRecord("g"));
        made.put("epoch", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord("g", 9, -7123456789L));
        made.put("epoch-without-hash", GroupCoordinatorRecordHelpers.newConsumerGroupEpochRecord("g", 9, 0));
        made.put("epoch-gone", GroupCoordinatorRecordHelpers.newConsumerGroupEpochTombstoneRecord("g"));
        made.put("metadata-gone", GroupCoordinatorRecordHelpers.newConsumerGroupSubscriptionMetadataTombstoneRecord("g"));
        made.put("member", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord("g", member));
        made.put("classic-member", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionRecord("g", classic));
        made.put("member-gone", GroupCoordinatorRecordHelpers.newConsumerGroupMemberSubscriptionTombstoneRecord("g", "m1"));
        made.put("target-epoch", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentEpochRecord("g", 9));
        made.put("target", GroupCoordinatorRecordHelpers.newConsumerGroupTargetAssignmentRecord("g", "m1", partitions));
        made.put("current", GroupCoordinatorRecordHelpers.newConsumerGroupCurrentAssignmentRecord("g", member));
        made.put(
                "regex",
                GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionRecord(
                        "g", "fl.*", new ResolvedRegularExpression(Set.of("flights"), 17, 1700000000000L)));
        made.put("regex-gone", GroupCoordinatorRecordHelpers.newConsumerGroupRegularExpressionTombstone("g", "fl.*"));
        return made;
    }

    private static CoordinatorRecord offset(OptionalInt epoch, String note, OptionalLong expiry, Uuid topic) {
        return GroupCoordinatorRecordHelpers.newOffsetCommitRecord(
                "g", "flights", 7, new OffsetAndMetadata(42, epoch, note, 1700000000000L, expiry, topic));
    }

    private static CoordinatorRecord classicGroup() {
        JoinGroupRequestProtocolCollection protocols = new JoinGroupRequestProtocolCollection();
        protocols.add(new JoinGroupRequestProtocol().setName("range").setMetadata(new byte[] {0, 1, 2}));
        ClassicGroup group = new ClassicGroup(
                new LogContext(),
                "g",
                ClassicGroupState.STABLE,
                Time.SYSTEM,
                3,
                Optional.of("consumer"),
                Optional.of("range"),
                Optional.of("m1"),
                Optional.of(1700000000000L));
        group.add(new ClassicGroupMember(
                "m1", Optional.of("i1"), "c1", "/127.0.0.1", 60000, 45000, "consumer", protocols));
        return GroupCoordinatorRecordHelpers.newGroupMetadataRecord(group, Map.of("m1", new byte[] {5, 6}));
    }

    private static ByteBuffer bytes(String hex) {
        return ByteBuffer.wrap(HexFormat.of().parseHex(hex));
    }

    private static String hex(CoordinatorRecord record) {
        byte[] value = SERDE.serializeValue(record);
        return HexFormat.of().formatHex(SERDE.serializeKey(record))
                + " " + (value == null ? "-" : HexFormat.of().formatHex(value));
    }
}
