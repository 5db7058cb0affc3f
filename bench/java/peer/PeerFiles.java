import java.io.BufferedOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.nio.ByteBuffer;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.locks.LockSupport;

/** What goes through files, and waiting until something is due. */
final class PeerFiles {
    private PeerFiles() {}

    /** Values, each after its length in four bytes. */
    static byte[][] values(String file) throws IOException {
        ByteBuffer all = ByteBuffer.wrap(Files.readAllBytes(Path.of(file)));
        List<byte[]> found = new ArrayList<>();
        while (all.hasRemaining()) {
            byte[] value = new byte[all.getInt()];
            all.get(value);
            found.add(value);
        }
        return found.toArray(byte[][]::new);
    }

    /** Seconds, in eight bytes each. */
    static void writeSeconds(String file, long[] nanos) throws IOException {
        try (DataOutputStream out = new DataOutputStream(new BufferedOutputStream(Files.newOutputStream(Path.of(file))))) {
            for (long each : nanos) {
                out.writeDouble(each / 1e9);
            }
        }
    }

    static void waitUntil(long dueNanos) {
        for (long left = dueNanos - System.nanoTime(); left > 0; left = dueNanos - System.nanoTime()) {
            LockSupport.parkNanos(left);
        }
    }
}
