import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;

/**
 * Kafka's own clients behind standard input, for measurements: one JVM stays warm from one measurement to the next.
 *
 * <p>A command is one line of words between tabs; so is the answer, which begins with "ok" or with "!" and what went wrong. Bulk data go
 * through files. End of input ends the program. `bench/systems/kafka/client_process.py` is the other end.
 */
public class Peer {
    private final String servers;
    private PeerAdmin admin;
    private PeerProducer producer;
    private PeerConsumer consumer;

    private Peer(String servers) {
        this.servers = servers;
    }

    public static void main(String[] arguments) throws Exception {
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        Peer peer = new Peer(arguments[0]);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            try {
                out.println(("ok\t" + peer.run(line.split("\t", -1))).strip());
            } catch (Exception error) {
                out.println("!\t" + error.toString().replaceAll("\\s", " "));
            }
        }
        Runtime.getRuntime().halt(0);
    }

    /** Returns the words of the answer between tabs. */
    private String run(String[] words) throws Exception {
        switch (words[0]) {
            case "producer" -> producer = new PeerProducer(words[1], settings(words));
            case "produce" -> producer.sendAll(words[1], Integer.parseInt(words[2]));
            case "rate" -> producer.sendAtRate(words[1], Double.parseDouble(words[2]), Integer.parseInt(words[3]), words[4]);
            case "steady-begin" -> producer.beginSteady(Double.parseDouble(words[1]));
            case "steady-seen" -> {
                return producer.steadySeen();
            }
            case "steady-end" -> producer.endSteady(words[1]);
            case "producer-close" -> producer.close();
            case "consumer" -> consumer = new PeerConsumer(words[1], settings(words));
            case "read" -> {
                return String.valueOf(consumer.read(Long.parseLong(words[1])));
            }
            case "digest" -> {
                return consumer.digest();
            }
            case "dump" -> consumer.dump(words[1]);
            case "consumer-close" -> consumer.close();
            default -> {
                return administer(words);
            }
        }
        return "";
    }

    private String administer(String[] words) throws Exception {
        if (admin == null) {
            admin = new PeerAdmin(servers);
        }
        switch (words[0]) {
            case "create" -> admin.create(words[1], words[2], words[3]);
            case "delete" -> admin.delete(words[1]);
            case "in-sync" -> {
                return String.valueOf(admin.smallestIsr(words[1]));
            }
            case "brokers" -> {
                return String.valueOf(admin.brokersCount());
            }
            case "controller" -> {
                return String.valueOf(admin.controllerId());
            }
            case "create-many" -> admin.createMany(words[1], Integer.parseInt(words[2]), Integer.parseInt(words[3]), words[4]);
            case "create-at-rate" -> admin.createAtRate(words[1], Double.parseDouble(words[2]), words[3]);
            case "delete-many" -> admin.deleteMany(words[1]);
            case "change" -> admin.changeSomething(words[1]);
            default -> throw new IllegalArgumentException("no command " + words[0]);
        }
        return "";
    }

    /** The words "name=value" after a command and its topic. */
    private Map<String, Object> settings(String[] words) {
        Map<String, Object> found = new HashMap<>(Map.of("bootstrap.servers", servers));
        Arrays.stream(words).skip(2).map(word -> word.split("=", 2)).forEach(pair -> found.put(pair[0], pair[1]));
        return found;
    }
}
