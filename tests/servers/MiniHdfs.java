import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.MiniDFSNNTopology;
import org.apache.hadoop.hdfs.protocol.HdfsConstants.SafeModeAction;

/**
 * A name node and data nodes of Hadoop in one process, for tests: tests/servers/hdfs.py starts it.
 *
 * <p>Arguments: FOLDER NODES PORT [SECOND_PORT]. With a second port there are two name nodes, the first one
 * active. It prints "ready" and then obeys a line of standard input at a time, answered by "done" or "failed":
 * "safemode on", "safemode off", "data down N", "data up", "active N", "name down N", "name up N", "lease SECONDS".
 * It ends with its standard input, so that it never outlives the test.
 */
public class MiniHdfs {
  private static MiniDFSCluster cluster;
  private static MiniDFSCluster.DataNodeProperties stopped;

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.set("hdfs.minidfs.basedir", args[0]);
    conf.setBoolean("dfs.permissions.enabled", false);
    conf.setBoolean("dfs.namenode.edits.noeditlogchannelflush", true);
    conf.setInt("dfs.namenode.replication.min", 1);
    conf.setInt("dfs.replication", Math.min(Integer.parseInt(args[1]), 3));
    conf.setInt("dfs.heartbeat.interval", 1);
    conf.setInt("dfs.namenode.heartbeat.recheck-interval", 1000);
    conf.setBoolean("dfs.namenode.avoid.write.stale.datanode", true);
    conf.setInt("dfs.namenode.stale.datanode.interval", 3000);
    conf.setInt("dfs.namenode.safemode.extension", 0);
    conf.setInt("dfs.ha.tail-edits.period", 1);
    conf.setInt("ipc.client.connect.max.retries", 1);
    MiniDFSCluster.Builder builder =
        new MiniDFSCluster.Builder(conf).numDataNodes(Integer.parseInt(args[1])).format(true);
    if (args.length > 3) {
      MiniDFSNNTopology.NSConf names = new MiniDFSNNTopology.NSConf("cluster");
      for (int n = 2; n < 4; n++) {
        names.addNN(new MiniDFSNNTopology.NNConf("nn" + (n - 1)).setIpcPort(Integer.parseInt(args[n])));
      }
      builder.nnTopology(new MiniDFSNNTopology().addNameservice(names));
    } else {
      builder.nameNodePort(Integer.parseInt(args[2]));
    }
    cluster = builder.build();
    if (args.length > 3) {
      cluster.transitionToActive(0);
    }
    cluster.waitActive();
    System.out.println("ready");
    BufferedReader lines = new BufferedReader(new InputStreamReader(System.in));
    for (String line = lines.readLine(); line != null; line = lines.readLine()) {
      try {
        obey(line.trim().split(" "));
        System.out.println("done");
      } catch (Exception failure) {
        System.out.println("failed " + failure);
      }
    }
    System.exit(0);
  }

  private static void obey(String[] words) throws Exception {
    switch (words[0]) {
      case "safemode":
        boolean on = words[1].equals("on");
        cluster.getFileSystem(0).setSafeMode(on ? SafeModeAction.SAFEMODE_ENTER : SafeModeAction.SAFEMODE_LEAVE);
        break;
      case "data":
        if (words[1].equals("down")) {
          stopped = cluster.stopDataNode(Integer.parseInt(words[2]));
        } else {
          cluster.restartDataNode(stopped, true);
          cluster.waitActive();
        }
        break;
      case "active":
        int to = Integer.parseInt(words[1]);
        if (cluster.getNameNode(1 - to) != null) {
          cluster.transitionToStandby(1 - to);
        }
        cluster.transitionToActive(to);
        break;
      case "name":
        int name = Integer.parseInt(words[2]);
        if (words[1].equals("down")) {
          cluster.shutdownNameNode(name);
        } else {
          cluster.restartNameNode(name, false);
        }
        break;
      case "lease":
        cluster.setLeasePeriod(Long.parseLong(words[1]) * 1000, Long.parseLong(words[1]) * 1000);
        break;
      default:
        throw new IllegalArgumentException(words[0]);
    }
  }
}
