import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hudi.common.config.HoodieMetadataConfig;
import org.apache.hudi.common.data.HoodieListData;
import org.apache.hudi.common.engine.HoodieEngineContext;
import org.apache.hudi.common.engine.HoodieLocalEngineContext;
import org.apache.hudi.metadata.HoodieBackedTableMetadata;
import org.apache.hudi.storage.HoodieStorage;
import org.apache.hudi.storage.HoodieStorageUtils;
import org.apache.hudi.storage.StorageConfiguration;
import org.apache.hudi.storage.hadoop.HadoopStorageConfiguration;

/**
 * Hudi's own look-ups in the record index of one table, which is opened anew each time.
 *
 * Arguments: the table, a file with a key per line, how often. Prints one line per kind of work: its name and
 * the seconds of each time, the first of which warm the machine up. Spark's executors would take part in a
 * query; here Hudi's local engine is asked, which starts no job.
 */
public class RecordIndexPeer {
  public static void main(String[] arguments) throws Exception {
    List<String> keys = Files.readAllLines(Path.of(arguments[1]));
    int times = Integer.parseInt(arguments[2]);
    for (int i = 0; i < times; i++) {
      timed("many", arguments[0], keys);
      timed("one", arguments[0], Collections.singletonList(keys.get(i)));
    }
  }

  private static void timed(String what, String path, List<String> keys) throws Exception {
    long begun = System.nanoTime();
    StorageConfiguration<Configuration> settings = new HadoopStorageConfiguration(new Configuration());
    HoodieEngineContext context = new HoodieLocalEngineContext(settings);
    HoodieMetadataConfig config = HoodieMetadataConfig.newBuilder().enable(true).build();
    HoodieStorage storage = HoodieStorageUtils.getStorage(path, settings);
    HoodieBackedTableMetadata metadata = new HoodieBackedTableMetadata(context, storage, config, path);
    List<String> wanted = new ArrayList<>(keys);
    int found = metadata.readRecordIndexLocationsWithKeys(HoodieListData.eager(wanted)).collectAsList().size();
    metadata.close();
    System.out.println(what + " " + (System.nanoTime() - begun) / 1e9);
    if (found != keys.size()) {
      throw new IllegalStateException(found + " of " + keys.size() + " keys were found");
    }
  }
}
