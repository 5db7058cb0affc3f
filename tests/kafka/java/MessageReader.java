import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.HexFormat;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.common.protocol.Readable;

/**
 * Reads messages with Kafka's own classes, and prints each anew: as bytes, and as JSON.
 *
 * <p>A line of the file: the message's name, its version, its bytes in hex. A line of the output: bytes in hex, JSON.
 */
public class MessageReader {
    public static void main(String[] arguments) throws Exception {
        StringBuilder output = new StringBuilder();
        for (String line : Files.readAllLines(Path.of(arguments[0]))) {
            String[] words = line.split(" ", -1);
            output.append(readAnew(words[0], Short.parseShort(words[1]), words[2])).append('\n');
        }
        System.out.print(output);
    }

    private static String readAnew(String name, short version, String hex) throws Exception {
        String dataClass = "org.apache.kafka.common.message." + name + "Data";
        Readable bytes = new ByteBufferAccessor(ByteBuffer.wrap(HexFormat.of().parseHex(hex)));
        Class<?> type = Class.forName(dataClass);
        ApiMessage message = (ApiMessage) type.getConstructor(Readable.class, short.class).newInstance(bytes, version);
        if (bytes.remaining() != 0) {
            return "left over: " + bytes.remaining();
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer written = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(written), cache, version);
        Object json = Class.forName(dataClass + "JsonConverter")
                .getMethod("write", type, short.class, boolean.class)
                .invoke(null, message, version, false);
        return HexFormat.of().formatHex(written.array()) + " " + json;
    }
}
