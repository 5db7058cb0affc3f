import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.StringJoiner;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.function.Consumer;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndTimestamp;
import org.apache.kafka.clients.consumer.SubscriptionPattern;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Kafka's own clients behind standard input, one JVM for a whole test run.
 *
 * <p>A command is one line of words between tabs; the answer is any number of lines and then one that is "." (done) or begins with
 * "!" (failed). Bytes are in hex, "-" is null, "" is empty. A record is "timestamp key value name=value name=value ..." between
 * tabs, with the header's name in hex too. End of input ends the program.
 */
public class KafkaDriver {
    private static final Duration POLL = Duration.ofMillis(200);
    private static final long DEADLINE_MS = 60_000;

    private final String servers;
    private final PrintStream out;
    private final List<KafkaProducer<byte[], byte[]>> left = new ArrayList<>();

    private KafkaDriver(String servers, PrintStream out) {
        this.servers = servers;
        this.out = out;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        KafkaDriver driver = new KafkaDriver(arguments[0], out);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                driver.run(line.split("\t", -1));
                out.println(".");
            } catch (Exception error) {
                out.println("! " + error.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);  // transactions that a test left open stay open
    }

    private void run(String[] words) throws Exception {
        switch (words[0]) {
            case "create" -> create(words[1], Integer.parseInt(words[2]), pairs(words, 3));
            case "produce" -> produce(partition(words), words[3], pairs(words, 4));
            case "transact" -> transact(partition(words), words[3], words[4], words[5]);
            case "begin" -> begin(words[1]);
            case "consume" -> consume(partition(words), words[3]);
            case "read" -> read(partition(words), Long.parseLong(words[3]), Integer.parseInt(words[4]));
            case "read-as-member" ->
                readAsMember(words[1], words[2], one -> one.subscribe(List.of(words[3])), Integer.parseInt(words[4]));
            case "read-by-pattern" -> readAsMember(words[1], "consumer",
                one -> one.subscribe(new SubscriptionPattern(words[2])), Integer.parseInt(words[3]));
            case "ends" -> ends(partition(words));
            case "partitions" -> partitions(words[1]);
            case "delete" -> delete(words[1]);
            case "offsets-for-times" -> offsetsForTimes(partition(words), words);
            case "delete-records" -> deleteRecords(partition(words), Long.parseLong(words[3]));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    /** Answers with the topic id. */
    private void create(String topic, int partitions, Map<String, Object> configs) throws Exception {
        Map<String, String> settings = new HashMap<>();
        configs.forEach((name, value) -> settings.put(name, value.toString()));
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            NewTopic made = new NewTopic(topic, partitions, (short) 1).configs(settings);
            out.println(admin.createTopics(List.of(made)).topicId(topic).get());
        }
    }

    /** Answers with the number of partitions, 0 where there is no such topic. */
    private void partitions(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            out.println(admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic).partitions().size());
        } catch (ExecutionException error) {
            if (!(error.getCause() instanceof UnknownTopicOrPartitionException)) {
                throw error;
            }
            out.println(0);
        }
    }

    private void delete(String topic) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.deleteTopics(List.of(topic)).all().get();
        }
    }

    /** Answers with the offset of each record. */
    private void produce(TopicPartition partition, String file, Map<String, Object> settings) throws Exception {
        try (KafkaProducer<byte[], byte[]> producer = producer(settings)) {
            send(producer, partition, file);
        }
    }

    /** @param end "commit", "abort", or "open": the transaction is left as it is */
    private void transact(TopicPartition partition, String file, String id, String end) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producer(new HashMap<>(Map.of("transactional.id", id)));
        producer.initTransactions();
        producer.beginTransaction();
        send(producer, partition, file);
        switch (end) {
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            default -> left.add(producer);
        }
        if (!end.equals("open")) {
            producer.close();
        }
    }

    private void begin(String id) {
        try (KafkaProducer<byte[], byte[]> producer = producer(new HashMap<>(Map.of("transactional.id", id)))) {
            producer.initTransactions();
        }
    }

    private void send(KafkaProducer<byte[], byte[]> producer, TopicPartition partition, String file) throws Exception {
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (String line : Files.readAllLines(Path.of(file))) {
            String[] words = line.split("\t", -1);
            ProducerRecord<byte[], byte[]> record = new ProducerRecord<>(partition.topic(), partition.partition(),
                Long.parseLong(words[0]), bytes(words[1]), bytes(words[2]));
            for (int i = 3; i < words.length; i++) {
                String[] header = words[i].split("=", -1);
                record.headers().add(new String(bytes(header[0]), StandardCharsets.UTF_8), bytes(header[1]));
            }
            sent.add(producer.send(record));
        }
        producer.flush();
        for (Future<RecordMetadata> one : sent) {
            out.println(one.get().offset());
        }
    }

    private KafkaProducer<byte[], byte[]> producer(Map<String, Object> settings) {
        settings.putIfAbsent("linger.ms", "20");
        settings.put("bootstrap.servers", servers);
        settings.put("delivery.timeout.ms", "30000");
        settings.put("request.timeout.ms", "10000");
        return new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
    }

    /** Answers with `count` records from an offset on, as `consume`. */
    private void read(TopicPartition partition, long start, int count) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            consumer.assign(List.of(partition));
            consumer.seek(partition, start);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            int found = 0;
            while (found < count) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    if (found++ < count) {
                        out.println(shown(record));
                    }
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(found + " of " + count + " records came");
                }
            }
        }
    }

    /** Answers with the values of `count` records that are new to a group, and commits behind them. */
    private void readAsMember(
            String group, String protocol, Consumer<KafkaConsumer<byte[], byte[]>> subscription, int count) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "group.id", group, "group.protocol", protocol,
            "auto.offset.reset", "earliest", "enable.auto.commit", "false");
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            subscription.accept(consumer);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            for (int found = 0; found < count; ) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    found++;
                    out.println(hex(record.value()));
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException(found + " of " + count + " records came");
                }
            }
            consumer.commitSync();
        }
    }

    /** Answers with the first offset and the end. */
    private void ends(TopicPartition partition) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            List<TopicPartition> one = List.of(partition);
            out.println(consumer.beginningOffsets(one).get(partition) + "\t" + consumer.endOffsets(one).get(partition));
        }
    }

    /** Answers with a line for each record: offset, timestamp type, timestamp, key, value, epoch, headers. */
    private void consume(TopicPartition partition, String isolation) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer(isolation)) {
            consumer.assign(List.of(partition));
            consumer.seekToBeginning(List.of(partition));
            long end = consumer.endOffsets(List.of(partition)).get(partition);
            long deadline = System.currentTimeMillis() + DEADLINE_MS;
            while (consumer.position(partition) < end) {
                for (ConsumerRecord<byte[], byte[]> record : consumer.poll(POLL)) {
                    out.println(shown(record));
                }
                if (System.currentTimeMillis() > deadline) {
                    throw new IllegalStateException("at " + consumer.position(partition) + " of " + end);
                }
            }
        }
    }

    private KafkaConsumer<byte[], byte[]> consumer(String isolation) {
        Map<String, Object> settings = Map.of("bootstrap.servers", servers, "isolation.level", isolation,
            "auto.offset.reset", "none", "enable.auto.commit", "false", "fetch.max.wait.ms", "50");
        return new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer());
    }

    private void offsetsForTimes(TopicPartition partition, String[] words) {
        try (KafkaConsumer<byte[], byte[]> consumer = consumer("read_uncommitted")) {
            for (int i = 3; i < words.length; i++) {
                Map<TopicPartition, Long> query = Map.of(partition, Long.parseLong(words[i]));
                OffsetAndTimestamp found = consumer.offsetsForTimes(query).get(partition);
                out.println(found == null ? "-" : found.offset() + "\t" + found.timestamp());
            }
        }
    }

    private void deleteRecords(TopicPartition partition, long offset) throws Exception {
        try (Admin admin = Admin.create(Map.of("bootstrap.servers", servers))) {
            admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(offset))).all().get();
        }
    }

    private static String shown(ConsumerRecord<byte[], byte[]> record) {
        StringJoiner line = new StringJoiner("\t");
        line.add(Long.toString(record.offset())).add(record.timestampType().name).add(Long.toString(record.timestamp()));
        line.add(hex(record.key())).add(hex(record.value())).add(shown(record.leaderEpoch()));
        for (Header header : record.headers()) {
            line.add(hex(header.key().getBytes(StandardCharsets.UTF_8)) + "=" + hex(header.value()));
        }
        return line.toString();
    }

    private static String shown(Optional<Integer> epoch) {
        return epoch.map(Object::toString).orElse("-1");
    }

    private static TopicPartition partition(String[] words) {
        return new TopicPartition(words[1], Integer.parseInt(words[2]));
    }

    private static Map<String, Object> pairs(String[] words, int from) {
        Map<String, Object> found = new HashMap<>();
        for (int i = from; i < words.length; i++) {
            String[] pair = words[i].split("=", 2);
            found.put(pair[0], pair[1]);
        }
        return found;
    }

    private static byte[] bytes(String text) {
        return text.equals("-") ? null : HexFormat.of().parseHex(text);
    }

    private static String hex(byte[] bytes) {
        return bytes == null ? "-" : HexFormat.of().formatHex(bytes);
    }
}
