import java.io.BufferedReader;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.InputStreamReader;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.kafka.common.utils.Exit;

/**
 * Runs programs one after another in one JVM, each as if it had one of its own: a start costs more than most of them do.
 *
 * <p>A command is one line between tabs, all words in hex: the class, what its standard input holds, its arguments. The answer is
 * its exit code, what it printed, its errors (both in hex), and a line with ".". End of input ends the program.
 *
 * <p>Kafka's programs exit by way of {@link Exit}, which throws here. What they do when the JVM ends is done when they end.
 */
public class ManyCalls {
    private static final List<Runnable> atEnd = new CopyOnWriteArrayList<>();
    private static final Switched output = new Switched();
    private static final Switched errors = new Switched();
    private static volatile Integer status;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        System.setOut(new PrintStream(output, true, StandardCharsets.UTF_8));
        System.setErr(new PrintStream(errors, true, StandardCharsets.UTF_8));
        Exit.setExitProcedure((code, message) -> end(code));
        Exit.setHaltProcedure((code, message) -> end(code));
        Exit.setShutdownHookAdder((name, runnable) -> atEnd.add(runnable));
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] words = Arrays.stream(line.split("\t", -1)).map(ManyCalls::text).toArray(String[]::new);
            call(words[0], words[1], Arrays.copyOfRange(words, 2, words.length));
            answers.println(status);
            answers.println(output.taken());
            answers.println(errors.taken());
            answers.println(".");
        }
        Runtime.getRuntime().halt(0);
    }

    private static void call(String program, String input, String[] arguments) throws Exception {
        status = null;
        atEnd.clear();
        System.setIn(new ByteArrayInputStream(input.getBytes(StandardCharsets.UTF_8)));
        try {
            Class.forName(program).getMethod("main", String[].class).invoke(null, (Object) arguments);
        } catch (InvocationTargetException wrapped) {
            if (!(wrapped.getCause() instanceof Ended)) {
                System.err.print("Exception in thread \"main\" ");
                wrapped.getCause().printStackTrace();
                status = status == null ? Integer.valueOf(1) : status;
            }
        }
        status = status == null ? Integer.valueOf(0) : status;
        atEnd.forEach(Runnable::run);
        System.out.flush();
        System.err.flush();
    }

    /** The first exit counts, as where it ends the JVM: a program may catch what is thrown and exit once more. */
    private static void end(int code) {
        status = status == null ? Integer.valueOf(code) : status;
        throw new Ended();
    }

    private static String text(String hex) {
        return new String(HexFormat.of().parseHex(hex), StandardCharsets.UTF_8);
    }

    /** Thrown where the JVM would end. */
    private static final class Ended extends Error {
        private Ended() {
            super("the program has exited", null, false, false);
        }
    }

    /** What was written since it was last taken: a logger keeps the stream that it has found at first. */
    private static final class Switched extends OutputStream {
        private final ByteArrayOutputStream written = new ByteArrayOutputStream();

        @Override
        public void write(int one) {
            written.write(one);
        }

        @Override
        public void write(byte[] data, int start, int length) {
            written.write(data, start, length);
        }

        private String taken() {
            synchronized (written) {
                String hex = HexFormat.of().formatHex(written.toByteArray());
                written.reset();
                return hex;
            }
        }
    }
}
