import java.io.ByteArrayOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import org.apache.hudi.io.ByteArraySeekableDataInputStream;
import org.apache.hudi.io.ByteBufferBackedInputStream;
import org.apache.hudi.io.compress.CompressionCodec;
import org.apache.hudi.io.hfile.HFileContext;
import org.apache.hudi.io.hfile.HFileReader;
import org.apache.hudi.io.hfile.HFileReaderImpl;
import org.apache.hudi.io.hfile.HFileWriterImpl;
import org.apache.hudi.io.hfile.KeyValue;
import org.apache.hudi.io.hfile.UTF8StringKey;

/**
 * Hudi's own HFile writer and reader, timed over the entries of one file in memory.
 *
 * Arguments: the file, how often, keys to look up in ascending order. Prints one line per kind of work:
 * its name and the seconds of each time, the first of which warm the machine up.
 */
public class HFilePeer {
  public static void main(String[] arguments) throws Exception {
    byte[] file = Files.readAllBytes(Path.of(arguments[0]));
    int times = Integer.parseInt(arguments[1]);
    List<String> keys = new ArrayList<>();
    List<byte[]> values = new ArrayList<>();
    for (int i = 0; i < times; i++) {
      keys.clear();
      values.clear();
      long begun = System.nanoTime();
      readAll(file, keys, values);
      said("read", begun);
      begun = System.nanoTime();
      byte[] written = write(keys, values);
      said("write", begun);
      System.out.println("size " + written.length);
    }
    for (int i = 2; i < arguments.length; i++) {
      long begun = System.nanoTime();
      HFileReader reader = opened(file);
      reader.seekTo(); // as Hudi's own look-ups begin
      if (reader.seekTo(new UTF8StringKey(arguments[i])) != HFileReader.SEEK_TO_FOUND) {
        throw new IllegalStateException("not found: " + arguments[i]);
      }
      valueOf(reader.getKeyValue().get());
      said("seek", begun);
    }
  }

  private static void said(String what, long begun) {
    System.out.println(what + " " + (System.nanoTime() - begun) / 1e9);
  }

  private static HFileReader opened(byte[] file) throws Exception {
    HFileReader reader = new HFileReaderImpl(
        new ByteArraySeekableDataInputStream(new ByteBufferBackedInputStream(file)), file.length);
    reader.initializeMetadata();
    return reader;
  }

  private static void readAll(byte[] file, List<String> keys, List<byte[]> values) throws Exception {
    HFileReader reader = opened(file);
    for (boolean more = reader.seekTo(); more; more = reader.next()) {
      KeyValue entry = reader.getKeyValue().get();
      keys.add(entry.getKey().getContentInString());
      values.add(valueOf(entry));
    }
  }

  private static byte[] valueOf(KeyValue entry) {
    int from = entry.getValueOffset();
    return Arrays.copyOfRange(entry.getBytes(), from, from + entry.getValueLength());
  }

  private static byte[] write(List<String> keys, List<byte[]> values) throws Exception {
    HFileContext context = HFileContext.builder()
        .blockSize(1024 * 1024).compressionCodec(CompressionCodec.GZIP).build();
    ByteArrayOutputStream made = new ByteArrayOutputStream();
    try (HFileWriterImpl writer = new HFileWriterImpl(context, made)) {
      for (int i = 0; i < keys.size(); i++) {
        writer.append(keys.get(i), values.get(i));
      }
    }
    return made.toByteArray();
  }
}
