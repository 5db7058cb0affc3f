import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.PartitionInfo;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** A producer for one topic, connected and warm: an empty record has gone to each partition. */
final class PeerProducer {
    private final String topic;
    private final KafkaProducer<byte[], byte[]> producer;
    private final AtomicReference<Exception> failure = new AtomicReference<>();
    private Steady steady;

    PeerProducer(String topic, Map<String, Object> settings) throws Exception {
        this.topic = topic;
        producer = new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer());
        List<Future<RecordMetadata>> sent = new ArrayList<>();
        for (PartitionInfo each : producer.partitionsFor(topic)) {
            sent.add(producer.send(new ProducerRecord<>(topic, each.partition(), null, new byte[0])));
        }
        for (Future<RecordMetadata> each : sent) {
            each.get();
        }
    }

    /** Returns when everything is acknowledged. */
    void sendAll(String file, int rounds) throws Exception {
        byte[][] values = PeerFiles.values(file);
        for (int round = 0; round < rounds; round++) {
            for (byte[] value : values) {
                producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> note(error));
            }
        }
        producer.flush();
        raiseFailure();
    }

    /** Writes how long each acknowledgement took, from when its record was due. */
    void sendAtRate(String file, double rate, int count, String out) throws Exception {
        byte[] value = PeerFiles.values(file)[0];
        long[] took = new long[count];
        long start = System.nanoTime() + 10_000_000;
        for (int number = 0; number < count; number++) {
            int mine = number;
            long due = start + (long) (number / rate * 1e9);
            PeerFiles.waitUntil(due);
            producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> {
                note(error);
                took[mine] = System.nanoTime() - due;
            });
        }
        producer.flush();
        raiseFailure();
        PeerFiles.writeSeconds(out, took);
    }

    void beginSteady(double rate) {
        steady = new Steady(rate);
        steady.start();
    }

    /** How many were sent, and the highest number that was acknowledged, or -1. */
    String steadySeen() {
        return steady.sent + "\t" + steady.highest;
    }

    /** Writes a line for each record: its offset (-1 when it failed), and when that was known, in seconds of the monotonic clock. */
    void endSteady(String out) throws Exception {
        steady.isStopped = true;
        steady.join();
        producer.flush();
        steady.write(out);
    }

    void close() {
        producer.close();
    }

    private void note(Exception error) {
        if (error != null) {
            failure.compareAndSet(null, error);
        }
    }

    private void raiseFailure() throws Exception {
        if (failure.get() != null) {
            throw failure.get();
        }
    }

    /** Numbered values, sent one by one at a fixed rate until somebody says stop. */
    private final class Steady extends Thread {
        private final double rate;
        private final Map<Integer, String> told = new ConcurrentHashMap<>();
        private volatile boolean isStopped;
        private volatile int sent;
        private volatile int highest = -1;

        Steady(double rate) {
            super("steady");
            this.rate = rate;
        }

        @Override
        public void run() {
            long start = System.nanoTime();
            while (!isStopped) {
                int number = sent;
                PeerFiles.waitUntil(start + (long) (number / rate * 1e9));
                byte[] value = ("value " + number).getBytes(StandardCharsets.US_ASCII);
                sent = number + 1;
                producer.send(new ProducerRecord<>(topic, value), (metadata, error) -> answered(number, metadata, error));
            }
        }

        private void answered(int number, RecordMetadata metadata, Exception error) {
            told.put(number, (error == null ? metadata.offset() : -1) + "\t" + System.nanoTime() / 1e9);
            if (error == null) {
                highest = Math.max(highest, number);
            }
        }

        private void write(String out) throws IOException {
            List<String> lines = new ArrayList<>();
            for (int number = 0; number < sent; number++) {
                lines.add(told.get(number));
            }
            Files.write(Path.of(out), lines);
        }
    }
}
