import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Consumer;
import java.util.zip.CRC32C;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;

/** A consumer of all partitions of a topic, assigned to them and in no group; each reading begins after the first records. */
final class PeerConsumer {
    private static final long FIRST_OFFSET = 1;
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long SILENCE_MAX_NANOS = 60_000_000_000L;

    private final KafkaConsumer<byte[], byte[]> consumer;
    private final List<TopicPartition> partitions;

    PeerConsumer(String topic, Map<String, Object> settings) {
        consumer = new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
        partitions = consumer.partitionsFor(topic).stream().map(each -> new TopicPartition(topic, each.partition())).toList();
        consumer.assign(partitions);
    }

    /** Reads so many records, or a few more; returns how many. */
    long read(long count) {
        rewind();
        long found = 0;
        for (long heard = System.nanoTime(); found < count && System.nanoTime() - heard < SILENCE_MAX_NANOS;) {
            int here = consumer.poll(POLL).count();
            found += here;
            heard = here > 0 ? System.nanoTime() : heard;
        }
        return found;
    }

    /** The number of records up to the ends of now, and the sum of their values' checksums. */
    String digest() {
        CRC32C crc = new CRC32C();
        long[] found = new long[2];
        readToEnds(record -> {
            crc.reset();
            crc.update(record.value());
            found[0]++;
            found[1] += crc.getValue();
        });
        return found[0] + "\t" + found[1];
    }

    /** Writes a line with offset and value, which is text, for each record up to the ends of now. */
    void dump(String out) throws Exception {
        List<String> lines = new ArrayList<>();
        readToEnds(record -> lines.add(record.offset() + "\t" + new String(record.value(), StandardCharsets.US_ASCII)));
        Files.write(Path.of(out), lines);
    }

    void close() {
        consumer.close();
    }

    private void readToEnds(Consumer<ConsumerRecord<byte[], byte[]>> each) {
        rewind();
        Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
        for (long heard = System.nanoTime(); partitions.stream().anyMatch(some -> consumer.position(some) < ends.get(some));) {
            ConsumerRecords<byte[], byte[]> records = consumer.poll(POLL);
            records.forEach(each);
            heard = records.isEmpty() ? heard : System.nanoTime();
            if (System.nanoTime() - heard > SILENCE_MAX_NANOS) {
                throw new IllegalStateException("no records for a minute before the ends " + ends);
            }
        }
    }

    private void rewind() {
        partitions.forEach(each -> consumer.seek(each, FIRST_OFFSET));
    }
}
