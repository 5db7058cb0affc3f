import java.util.HexFormat;
import org.apache.kafka.tools.api.Decoder;

/** Lets DumpLogSegments print keys and values so that every byte can be compared. */
public class HexDecoder implements Decoder<String> {
    @Override
    public String fromBytes(byte[] bytes) {
        return HexFormat.of().formatHex(bytes);
    }
}
