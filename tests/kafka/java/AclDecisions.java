import java.net.InetAddress;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.kafka.common.Uuid;
import org.apache.kafka.common.acl.AclOperation;
import org.apache.kafka.common.acl.AclPermissionType;
import org.apache.kafka.common.errors.AuthorizerNotReadyException;
import org.apache.kafka.common.metrics.Metrics;
import org.apache.kafka.common.metrics.internals.PluginMetricsImpl;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.resource.ResourceType;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.metadata.authorizer.StandardAcl;
import org.apache.kafka.metadata.authorizer.StandardAuthorizer;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizableRequestContext;
import org.apache.kafka.server.authorizer.AuthorizationResult;

/**
 * What Kafka's StandardAuthorizer decides. Lines of the file, words with tabs between them and codes as numbers:
 *
 * <pre>
 * new       ALLOW_IF_NO_ACL SUPER_USERS              another authorizer, without entries, not loaded yet
 * entry     KIND NAME PATTERN PRINCIPAL HOST OPERATION PERMISSION
 * loaded                                             it knows all entries
 * allows    USER HOST OPERATION KIND NAME            prints yes, no, or unready
 * any       USER HOST OPERATION KIND                 the same, for some resource of a kind
 * </pre>
 */
public class AclDecisions {
    public static void main(String[] arguments) throws Exception {
        StringBuilder output = new StringBuilder();
        StandardAuthorizer authorizer = null;
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split("\t", -1);
            switch (words[0]) {
                case "new" -> authorizer = authorizer(words[1], words[2]);
                case "entry" -> authorizer.addAcl(Uuid.randomUuid(), entry(words));
                case "loaded" -> authorizer.completeInitialLoad();
                default -> output.append(answer(authorizer, words)).append('\n');
            }
        }
        System.out.print(output);
    }

    private static StandardAuthorizer authorizer(String allowIfNoAcl, String superUsers) {
        StandardAuthorizer made = new StandardAuthorizer();
        made.configure(Map.of("allow.everyone.if.no.acl.found", allowIfNoAcl, "super.users", superUsers));
        made.withPluginMetrics(new PluginMetricsImpl(new Metrics(), Map.of()));
        return made;
    }

    private static StandardAcl entry(String[] words) {
        return new StandardAcl(
                ResourceType.fromCode(Byte.parseByte(words[1])),
                words[2],
                PatternType.fromCode(Byte.parseByte(words[3])),
                words[4],
                words[5],
                AclOperation.fromCode(Byte.parseByte(words[6])),
                AclPermissionType.fromCode(Byte.parseByte(words[7])));
    }

    private static String answer(StandardAuthorizer authorizer, String[] words) throws Exception {
        AuthorizableRequestContext context = new Caller(words[1], InetAddress.getByName(words[2]));
        AclOperation operation = AclOperation.fromCode(Byte.parseByte(words[3]));
        ResourceType kind = ResourceType.fromCode(Byte.parseByte(words[4]));
        try {
            AuthorizationResult result;
            if (words[0].equals("any")) {
                result = authorizer.authorizeByResourceType(context, operation, kind);
            } else {
                ResourcePattern resource = new ResourcePattern(kind, words[5], PatternType.LITERAL);
                result = authorizer.authorize(context, List.of(new Action(operation, resource, 1, false, false))).get(0);
            }
            return result == AuthorizationResult.ALLOWED ? "yes" : "no";
        } catch (AuthorizerNotReadyException notLoaded) {
            return "unready";
        }
    }

    /** The client of a request. */
    private record Caller(String user, InetAddress clientAddress) implements AuthorizableRequestContext {
        @Override
        public KafkaPrincipal principal() {
            return new KafkaPrincipal(KafkaPrincipal.USER_TYPE, user);
        }

        @Override
        public String listenerName() {
            return "PLAINTEXT";
        }

        @Override
        public SecurityProtocol securityProtocol() {
            return SecurityProtocol.PLAINTEXT;
        }

        @Override
        public int requestType() {
            return 1;
        }

        @Override
        public int requestVersion() {
            return 0;
        }

        @Override
        public String clientId() {
            return "";
        }

        @Override
        public int correlationId() {
            return 0;
        }
    }
}
