import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Transactional producers of Kafka's client, step by step: lines of words between tabs as in KafkaDriver. "try" before a step answers
 * with the name of the exception that it ends with.
 */
public class TransactionSteps {
    private final Map<String, KafkaProducer<byte[], byte[]>> producers = new HashMap<>();
    private final String servers;

    private TransactionSteps(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        TransactionSteps steps = new TransactionSteps(arguments[0]);
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = line.split("\t", -1);
            try {
                if (words[0].equals("try")) {
                    out.println(steps.failure(Arrays.copyOfRange(words, 1, words.length)));
                } else {
                    steps.run(words);
                }
                out.println(".");
            } catch (Exception error) {
                out.println("! " + error.toString().replace('\n', ' '));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    private String failure(String[] words) {
        try {
            run(words);
        } catch (Exception error) {
            return error.getClass().getSimpleName();
        }
        return "nothing";
    }

    private void run(String[] words) throws Exception {
        KafkaProducer<byte[], byte[]> producer = producers.get(words[1]);
        switch (words[0]) {
            case "open" -> open(words[1], words[2], Integer.parseInt(words[3]));
            case "begin" -> producer.beginTransaction();
            case "send" ->
                producer.send(new ProducerRecord<>(words[2], 0, null, words[3].getBytes(StandardCharsets.UTF_8))).get();
            case "offsets" -> producer.sendOffsetsToTransaction(
                Map.of(new TopicPartition(words[3], 0), new OffsetAndMetadata(Long.parseLong(words[4]))),
                new ConsumerGroupMetadata(words[2]));
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> producer.close(Duration.ofSeconds(5));
            default -> throw new IllegalArgumentException(words[0]);
        }
    }

    private void open(String name, String transactionalId, int timeoutMs) {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", servers, "transactional.id", transactionalId, "transaction.timeout.ms", timeoutMs, "linger.ms", 0);
        KafkaProducer<byte[], byte[]> producer =
            new KafkaProducer<>(new HashMap<>(settings), new ByteArraySerializer(), new ByteArraySerializer());
        producers.put(name, producer);
        producer.initTransactions();
    }
}
