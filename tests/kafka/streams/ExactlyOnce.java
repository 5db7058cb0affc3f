import java.time.Duration;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.JoinWindows;
import org.apache.kafka.streams.kstream.KStream;

/**
 * Counts words, and joins two streams in a window, exactly once: each count of a word follows the one before, and each pair is joined
 * once, however often the program is killed. Prints "running" when it works.
 *
 * <p>Arguments: servers, application id, folder for its state, topics of words, counts, the left and the right side, and pairs.
 */
public class ExactlyOnce {
    private static final Duration WINDOW = Duration.ofHours(1);

    public static void main(String[] arguments) {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> words = builder.stream(arguments[3]);
        words.groupByKey().count().toStream().mapValues(count -> Long.toString(count)).to(arguments[4]);
        KStream<String, String> left = builder.stream(arguments[5]);
        KStream<String, String> right = builder.stream(arguments[6]);
        left.join(right, (one, other) -> one + "+" + other, JoinWindows.ofTimeDifferenceWithNoGrace(WINDOW)).to(arguments[7]);
        KafkaStreams streams = new KafkaStreams(builder.build(), settings(arguments));
        streams.setStateListener((now, before) -> {
            if (now == KafkaStreams.State.RUNNING) {
                System.out.println("running");
            } else if (now == KafkaStreams.State.ERROR) {
                Runtime.getRuntime().halt(3);
            }
        });
        streams.start();
    }

    private static Properties settings(String[] arguments) {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("default.key.serde", Serdes.String().getClass());
        settings.put("default.value.serde", Serdes.String().getClass());
        settings.put("default.dsl.store", "in_memory");
        settings.put("statestore.cache.max.bytes", 0);
        settings.put("commit.interval.ms", 100);
        settings.put("replication.factor", 1);
        settings.put("auto.offset.reset", "earliest");
        settings.put("group.instance.id", "one");
        settings.put("max.poll.records", 20);
        settings.put("producer.transaction.timeout.ms", 10_000);
        return settings;
    }
}
