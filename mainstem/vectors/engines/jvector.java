// Graphs of jVector for the engine "jvector". Spark's own compiler compiles this class in Spark's JVM at first use
// (Janino: no lambdas, no "var"), so nothing of mainstem has to be installed there. Vectors, edges, queries and
// answers are passed as byte arrays of many rows, little-endian, since a call from Python costs as much as a search.
package mainstem.vectors;

import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.concurrent.ForkJoinPool;
import java.util.concurrent.atomic.AtomicInteger;

import io.github.jbellis.jvector.graph.GraphIndexBuilder;
import io.github.jbellis.jvector.graph.GraphSearcher;
import io.github.jbellis.jvector.graph.ImmutableGraphIndex;
import io.github.jbellis.jvector.graph.NodesIterator;
import io.github.jbellis.jvector.graph.RandomAccessVectorValues;
import io.github.jbellis.jvector.graph.SearchResult;
import io.github.jbellis.jvector.graph.similarity.BuildScoreProvider;
import io.github.jbellis.jvector.graph.similarity.DefaultSearchScoreProvider;
import io.github.jbellis.jvector.graph.similarity.ScoreFunction;
import io.github.jbellis.jvector.util.Bits;
import io.github.jbellis.jvector.vector.VectorSimilarityFunction;
import io.github.jbellis.jvector.vector.VectorizationProvider;
import io.github.jbellis.jvector.vector.types.VectorFloat;

/** Vectors and their graph, which is either built here (begin, add, finish) or read from a file (given, link). */
public final class JVectorGraph {
    static final class Vectors implements RandomAccessVectorValues {
        final VectorFloat[] rows;
        final float[][] values;
        final int dimension;

        Vectors(int count, int dimension) {
            this.rows = new VectorFloat[count];
            this.values = new float[count][];
            this.dimension = dimension;
        }

        public int size() { return rows.length; }
        public int dimension() { return dimension; }
        public VectorFloat<?> getVector(int row) { return rows[row]; }
        public boolean isValueShared() { return false; }
        public RandomAccessVectorValues copy() { return this; }
    }

    /** Edges read from a file; the caller has checked that each leads to a node of its level. */
    static final class Edges implements ImmutableGraphIndex, ImmutableGraphIndex.View {
        final int count;
        final int dimension;
        final int degree;
        final int[][] base;
        final HashMap[] upper;
        ImmutableGraphIndex.NodeAtLevel entry;

        Edges(int count, int dimension, int degree, int levels) {
            this.count = count;
            this.dimension = dimension;
            this.degree = degree;
            this.base = new int[count][];
            this.upper = new HashMap[levels];
            for (int level = 1; level < levels; level++) {
                upper[level] = new HashMap();
            }
        }

        int[] of(int level, int node) {
            return level == 0 ? base[node] : (int[]) upper[level].get(Integer.valueOf(node));
        }

        public NodesIterator getNeighborsIterator(int level, int node) {
            return new NodesIterator.ArrayNodesIterator(of(level, node));
        }

        public void processNeighbors(
            int level, int node, ScoreFunction score, ImmutableGraphIndex.IntMarker visited,
            ImmutableGraphIndex.NeighborProcessor processor
        ) {
            int[] all = of(level, node);
            for (int at = 0; at < all.length; at++) {
                if (visited.mark(all[at])) {
                    processor.process(all[at], score.similarityTo(all[at]));
                }
            }
        }

        public NodesIterator getNodes(int level) {
            int[] nodes = new int[size(level)];
            int at = 0;
            if (level == 0) {
                for (; at < count; at++) {
                    nodes[at] = at;
                }
            } else {
                Object[] there = upper[level].keySet().toArray();
                for (; at < nodes.length; at++) {
                    nodes[at] = ((Integer) there[at]).intValue();
                }
            }
            return new NodesIterator.ArrayNodesIterator(nodes);
        }

        public ImmutableGraphIndex.View getView() { return this; }
        public int size() { return count; }
        public int size(int level) { return level == 0 ? count : upper[level].size(); }
        public int getIdUpperBound() { return count; }
        public boolean containsNode(int node) { return node >= 0 && node < count; }
        public boolean contains(int level, int node) {
            return level == 0 ? containsNode(node) : upper[level].containsKey(Integer.valueOf(node));
        }
        public ImmutableGraphIndex.NodeAtLevel entryNode() { return entry; }
        public Bits liveNodes() { return Bits.ALL; }
        public int maxDegree() { return degree; }
        public int getDegree(int level) { return degree; }
        public double getAverageDegree(int level) { return degree; }
        public List maxDegrees() { return Arrays.asList(new Object[] {Integer.valueOf(degree)}); }
        public int getDimension() { return dimension; }
        public boolean isHierarchical() { return upper.length > 1; }
        public int getMaxLevel() { return upper.length - 1; }
        public long ramBytesUsed() { return 4L * count * degree; }
        public void close() { }
    }

    static final class Mask implements Bits {
        final byte[] bits;

        Mask(byte[] bits) { this.bits = bits; }

        public boolean get(int row) { return (bits[row >> 3] >> (row & 7) & 1) != 0; }
    }

    /** Rows to add or queries to search for; several threads take them one by one. */
    abstract static class Work implements Runnable {
        final AtomicInteger next = new AtomicInteger();
        final int end;
        volatile Throwable failure;

        Work(int end) { this.end = end; }

        abstract void each(int at, GraphSearcher searcher) throws Exception;
        GraphSearcher taken() { return null; }
        void done(GraphSearcher searcher) { }

        public void run() {
            try {
                GraphSearcher searcher = taken();
                for (int at = next.getAndIncrement(); at < end && failure == null; at = next.getAndIncrement()) {
                    each(at, searcher);
                }
                done(searcher);
            } catch (Throwable error) {
                failure = error;
            }
        }

        void all(int threads) throws Exception {
            Thread[] others = new Thread[Math.max(0, Math.min(threads, end) - 1)];
            for (int at = 0; at < others.length; at++) {
                others[at] = new Thread(this, "mainstem-jvector-" + at);
                others[at].setDaemon(true);
                others[at].start();
            }
            run();
            for (int at = 0; at < others.length; at++) {
                others[at].join();
            }
            if (failure instanceof Error) {
                throw (Error) failure;
            }
            if (failure != null) {
                throw (Exception) failure;
            }
        }
    }

    private final Vectors vectors;
    private final VectorSimilarityFunction similarity;
    private final boolean euclidean;
    private final boolean unit;
    private final ConcurrentLinkedQueue searchers = new ConcurrentLinkedQueue();
    private Edges edges;
    private ImmutableGraphIndex graph;
    private GraphIndexBuilder builder;
    private ForkJoinPool pool;

    /** The metric decides the distance; graphs for dot products hold equally long vectors and use Euclidean ones. */
    public JVectorGraph(int count, int dimension, String metric) {
        this.vectors = new Vectors(count, dimension);
        this.unit = metric.equals("cosine");
        this.euclidean = metric.equals("l2");
        this.similarity = unit ? VectorSimilarityFunction.DOT_PRODUCT : VectorSimilarityFunction.EUCLIDEAN;
    }

    /** Sets the vectors of rows from "first" on. */
    public void put(int first, byte[] data) {
        float[][] given = floats(data);
        for (int at = 0; at < given.length; at++) {
            vectors.values[first + at] = given[at];
            vectors.rows[first + at] = vector(given[at]);
        }
    }

    public void begin(int m, int efConstruction, double overflow, double alpha, int threads) {
        pool = new ForkJoinPool(threads);
        builder = new GraphIndexBuilder(
            BuildScoreProvider.randomAccessScoreProvider(vectors, similarity), vectors.dimension, m,
            efConstruction, (float) overflow, (float) alpha, true, true, pool, pool
        );
        graph = builder.getGraph();
    }

    /** Adds the rows whose bits are set. */
    public void add(final byte[] bits, int threads) throws Exception {
        final Mask mask = new Mask(bits);
        Work work = new Work(vectors.size()) {
            void each(int row, GraphSearcher none) {
                if (mask.get(row)) {
                    builder.addGraphNode(row, vectors.getVector(row));
                }
            }
        };
        work.all(threads);
    }

    public void finish() throws Exception {
        builder.cleanup();
        pool.shutdown();
    }

    public int levels() { return graph.getMaxLevel() + 1; }
    public int entry() { return graph.getView().entryNode().node; }
    public int size(int level) { return graph.size(level); }

    /** Nodes on a level of the graph built here, int32, ascending. */
    public byte[] nodes(int level) {
        int[] nodes = new int[graph.size(level)];
        NodesIterator all = graph.getNodes(level);
        for (int at = 0; at < nodes.length; at++) {
            nodes[at] = all.nextInt();
        }
        Arrays.sort(nodes);
        ByteBuffer out = ByteBuffer.allocate(4 * nodes.length).order(ByteOrder.LITTLE_ENDIAN);
        out.asIntBuffer().put(nodes);
        return out.array();
    }

    /** Edges of some nodes on a level, int32; each node's list is padded with -1 to "degree". */
    public byte[] edges(int level, byte[] wanted, int degree) {
        ByteBuffer nodes = ByteBuffer.wrap(wanted).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer out = ByteBuffer.allocate(wanted.length * degree).order(ByteOrder.LITTLE_ENDIAN);
        ImmutableGraphIndex.View view = graph.getView();
        while (nodes.hasRemaining()) {
            NodesIterator all = view.getNeighborsIterator(level, nodes.getInt());
            int used = 0;
            for (; all.hasNext() && used < degree; used++) {
                out.putInt(all.nextInt());
            }
            for (; used < degree; used++) {
                out.putInt(-1);
            }
        }
        return out.array();
    }

    public void given(int degree, int levels, int entry) {
        edges = new Edges(vectors.size(), vectors.dimension, degree, levels);
        edges.entry = new ImmutableGraphIndex.NodeAtLevel(levels - 1, entry);
        graph = edges;
    }

    /** Sets edges, in the form in which edges() returned them. */
    public void link(int level, byte[] nodes, byte[] lists) {
        ByteBuffer names = ByteBuffer.wrap(nodes).order(ByteOrder.LITTLE_ENDIAN);
        ByteBuffer in = ByteBuffer.wrap(lists).order(ByteOrder.LITTLE_ENDIAN);
        int[] list = new int[edges.degree];
        while (names.hasRemaining()) {
            int node = names.getInt();
            int used = 0;
            for (int at = 0; at < list.length; at++) {
                int target = in.getInt();
                if (target >= 0) {
                    list[used++] = target;
                }
            }
            int[] trimmed = Arrays.copyOf(list, used);
            if (level == 0) {
                edges.base[node] = trimmed;
            } else {
                edges.upper[level].put(Integer.valueOf(node), trimmed);
            }
        }
    }

    /** Labels (q, k), int32, -1 for none, followed by distances (q, k), float32; bits null: all rows are allowed. */
    public byte[] search(byte[] data, final int k, final int ef, byte[] bits, int threads) throws Exception {
        final float[][] queries = floats(data);
        final ByteBuffer out = ByteBuffer.allocate(8 * queries.length * k).order(ByteOrder.LITTLE_ENDIAN);
        final Bits allowed = bits == null ? Bits.ALL : (Bits) new Mask(bits);
        final int half = 4 * queries.length * k;
        Work work = new Work(queries.length) {
            GraphSearcher taken() {
                GraphSearcher kept = builder == null ? (GraphSearcher) searchers.poll() : null;
                if (kept == null) {
                    kept = new GraphSearcher(graph);
                    kept.usePruning(false);
                }
                return kept;
            }

            void done(GraphSearcher searcher) {
                if (builder == null) {
                    searchers.add(searcher);
                }
            }

            void each(int at, GraphSearcher searcher) {
                SearchResult.NodeScore[] found = searcher.search(
                    DefaultSearchScoreProvider.exact(vector(queries[at]), similarity, vectors),
                    k, Math.max(k, ef), 0.0f, 0.0f, allowed
                ).getNodes();
                for (int rank = 0; rank < k; rank++) {
                    int place = 4 * (at * k + rank);
                    boolean there = rank < found.length;
                    out.putInt(place, there ? found[rank].node : -1);
                    out.putFloat(
                        half + place,
                        there ? distance(queries[at], vectors.values[found[rank].node]) : Float.POSITIVE_INFINITY
                    );
                }
            }
        };
        work.all(threads);
        return out.array();
    }

    private float distance(float[] one, float[] other) {
        double sum = 0;
        for (int at = 0; at < one.length; at++) {
            double part = (double) one[at] - other[at];
            sum += euclidean ? part * part : (double) one[at] * other[at];
        }
        return (float) (euclidean ? Math.sqrt(sum) : unit ? 1 - sum : -sum);
    }

    private float[][] floats(byte[] data) {
        int width = vectors.dimension;
        float[][] rows = new float[data.length / (4 * width)][width];
        ByteBuffer in = ByteBuffer.wrap(data).order(ByteOrder.LITTLE_ENDIAN);
        for (int at = 0; at < rows.length; at++) {
            in.position(4 * width * at);
            in.asFloatBuffer().get(rows[at]);
        }
        return rows;
    }

    private static VectorFloat vector(float[] values) {
        return VectorizationProvider.getInstance().getVectorTypeSupport().createFloatVector(values);
    }
}
