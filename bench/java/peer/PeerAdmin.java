import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.AlterConfigsOptions;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.RetriableException;

/** Topics, and what the cluster says of itself. */
final class PeerAdmin {
    private static final int ATTEMPT_MS = 500;
    private static final long PAUSE_MS = 10;

    private final Admin admin;

    PeerAdmin(String servers) {
        admin = Admin.create(Map.of("bootstrap.servers", servers));
    }

    /** @param replicas of each partition: "1,2,3;2,3,1" */
    void create(String topic, String replicas, String minInSync) throws Exception {
        Map<Integer, List<Integer>> placed = new HashMap<>();
        for (String each : replicas.split(";")) {
            placed.put(placed.size(), Arrays.stream(each.split(",")).map(Integer::valueOf).toList());
        }
        NewTopic made = new NewTopic(topic, placed).configs(Map.of("min.insync.replicas", minInSync));
        admin.createTopics(List.of(made)).all().get();
    }

    void delete(String topic) throws Exception {
        admin.deleteTopics(List.of(topic)).all().get();
    }

    /** Zero while some partition has no leader, or is not known yet. */
    int smallestIsr(String topic) throws Exception {
        try {
            TopicDescription found = admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
            return found.partitions().stream().mapToInt(each -> each.leader() == null ? 0 : each.isr().size()).min().orElse(0);
        } catch (ExecutionException error) {
            if (error.getCause() instanceof RetriableException) {
                return 0;
            }
            throw error;
        }
    }

    int brokersCount() throws Exception {
        return admin.describeCluster().nodes().get().size();
    }

    int controllerId() throws Exception {
        return admin.describeMetadataQuorum().quorumInfo().get().leaderId();
    }

    /** Topics of one partition; writes the seconds that each request took. */
    void createMany(String names, int perRequest, int inFlight, String out) throws Exception {
        List<String> all = Files.readAllLines(Path.of(names));
        int count = (all.size() + perRequest - 1) / perRequest;
        long[] took = new long[count];
        Semaphore room = new Semaphore(inFlight);
        List<CompletableFuture<Void>> answers = new ArrayList<>();
        for (int number = 0; number < count; number++) {
            int mine = number;
            room.acquire();
            long start = System.nanoTime();
            answers.add(request(all.subList(number * perRequest, Math.min(all.size(), (number + 1) * perRequest)))
                .whenComplete((none, error) -> {
                    took[mine] = System.nanoTime() - start;
                    room.release();
                }));
        }
        waitFor(answers);
        PeerFiles.writeSeconds(out, took);
    }

    /** Topics of one partition, one a request, at a fixed rate; writes the seconds from when each was due to its answer. */
    void createAtRate(String names, double rate, String out) throws Exception {
        List<String> all = Files.readAllLines(Path.of(names));
        long[] took = new long[all.size()];
        long start = System.nanoTime() + PAUSE_MS * 1_000_000;
        List<CompletableFuture<Void>> answers = new ArrayList<>();
        for (int number = 0; number < took.length; number++) {
            int mine = number;
            long due = start + (long) (number / rate * 1e9);
            PeerFiles.waitUntil(due);
            answers.add(request(List.of(all.get(number))).whenComplete((none, error) -> took[mine] = System.nanoTime() - due));
        }
        waitFor(answers);
        PeerFiles.writeSeconds(out, took);
    }

    void deleteMany(String names) throws Exception {
        admin.deleteTopics(Files.readAllLines(Path.of(names))).all().get();
    }

    /** Returns when a change is committed; asks again until then. */
    void changeSomething(String value) throws Exception {
        ConfigResource everyBroker = new ConfigResource(ConfigResource.Type.BROKER, "");
        AlterConfigOp change = new AlterConfigOp(new ConfigEntry("log.retention.ms", value), AlterConfigOp.OpType.SET);
        Map<ConfigResource, Collection<AlterConfigOp>> changes = Map.of(everyBroker, List.of(change));
        while (true) {
            try {
                AlterConfigsOptions soon = new AlterConfigsOptions().timeoutMs(ATTEMPT_MS);
                admin.incrementalAlterConfigs(changes, soon).all().get(ATTEMPT_MS, TimeUnit.MILLISECONDS);
                return;
            } catch (TimeoutException error) {
                continue;
            } catch (ExecutionException error) {
                if (!(error.getCause() instanceof RetriableException)) {
                    throw error;
                }
            }
            Thread.sleep(PAUSE_MS);
        }
    }

    private CompletableFuture<Void> request(List<String> names) {
        List<NewTopic> topics = names.stream().map(name -> new NewTopic(name, 1, (short) 3)).toList();
        return admin.createTopics(topics).all().toCompletionStage().toCompletableFuture();
    }

    private static void waitFor(List<CompletableFuture<Void>> answers) {
        CompletableFuture.allOf(answers.toArray(CompletableFuture[]::new)).join();
    }
}
