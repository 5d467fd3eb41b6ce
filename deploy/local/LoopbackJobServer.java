import java.io.IOException;
import java.lang.reflect.Field;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.Collection;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.regex.Pattern;
import org.apache.beam.model.pipeline.v1.Endpoints.ApiServiceDescriptor;
import org.apache.beam.model.pipeline.v1.RunnerApi.ExecutableStagePayload;
import org.apache.beam.model.pipeline.v1.RunnerApi.PTransform;
import org.apache.beam.model.pipeline.v1.RunnerApi.Pipeline;
import org.apache.beam.runners.flink.FlinkBatchPortablePipelineTranslator;
import org.apache.beam.runners.flink.FlinkBatchPortablePipelineTranslator.BatchTranslationContext;
import org.apache.beam.runners.flink.FlinkJobInvoker;
import org.apache.beam.runners.flink.FlinkJobServerDriver;
import org.apache.beam.runners.flink.FlinkJobServerDriver.FlinkServerConfiguration;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.runners.flink.FlinkPipelineRunner;
import org.apache.beam.runners.flink.FlinkPortablePipelineTranslator;
import org.apache.beam.runners.fnexecution.provisioning.JobInfo;
import org.apache.beam.runners.fnexecution.translation.PipelineTranslatorUtils;
import org.apache.beam.runners.jobsubmission.JobInvocation;
import org.apache.beam.runners.jobsubmission.JobServerDriver;
import org.apache.beam.runners.jobsubmission.JobServerDriver.JobInvokerFactory;
import org.apache.beam.runners.jobsubmission.PortablePipelineResult;
import org.apache.beam.runners.jobsubmission.PortablePipelineRunner;
import org.apache.beam.sdk.fn.server.GrpcContextHeaderAccessorProvider;
import org.apache.beam.sdk.fn.server.ServerFactory;
import org.apache.beam.sdk.util.construction.PTransformTranslation;
import org.apache.beam.sdk.util.construction.graph.ExecutableStage;
import org.apache.beam.sdk.util.construction.graph.PipelineNode.PTransformNode;
import org.apache.beam.sdk.util.construction.graph.QueryablePipeline;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.BindableService;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.Server;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.ServerInterceptors;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.netty.NettyServerBuilder;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.ListeningExecutorService;
import org.apache.flink.api.java.DataSet;
import org.apache.flink.api.java.ExecutionEnvironment;
import org.apache.flink.api.java.operators.DataSink;
import org.apache.flink.api.java.operators.Operator;
import org.apache.flink.api.java.operators.SingleInputOperator;

/**
 * Beam's job server for Flink on loopback, with the words of its own command.
 *
 * <p>Its own listens on every network interface whatever its host is called, and anyone who reaches it can run code.
 */
public final class LoopbackJobServer extends ServerFactory {
  public static void main(String[] words) throws Exception {
    FlinkServerConfiguration configuration = FlinkJobServerDriver.parseArgs(words);
    JobInvokerFactory invoker = () -> new JarlessInvoker(configuration);
    Class<?>[] kinds = {
      FlinkServerConfiguration.class, ServerFactory.class, ServerFactory.class, JobInvokerFactory.class
    };
    Method create = FlinkJobServerDriver.class.getDeclaredMethod("create", kinds);
    create.setAccessible(true);
    ServerFactory loopback = new LoopbackJobServer();
    ((JobServerDriver) create.invoke(null, configuration, loopback, loopback, invoker)).run();
  }

  @Override
  public Server allocateAddressAndCreate(List<BindableService> services, ApiServiceDescriptor.Builder place)
      throws IOException {
    Server server = started(services, 0);
    place.setUrl("localhost:" + server.getPort());
    return server;
  }

  @Override
  public Server create(List<BindableService> services, ApiServiceDescriptor place) throws IOException {
    return started(services, Integer.parseInt(place.getUrl().substring(place.getUrl().lastIndexOf(':') + 1)));
  }

  private static Server started(List<BindableService> services, int port) throws IOException {
    NettyServerBuilder builder =
        NettyServerBuilder.forAddress(new InetSocketAddress(InetAddress.getLoopbackAddress(), port))
            .maxInboundMessageSize(Integer.MAX_VALUE);
    for (BindableService each : services) {
      builder.addService(ServerInterceptors.intercept(each, GrpcContextHeaderAccessorProvider.interceptor()));
    }
    return builder.build().start();
  }

  /**
   * Sends jobs without jars: their classes are in Flink's lib, and Beam's own invoker sends the whole class path.
   *
   * <p>For another place of Flink's client configuration than `--flink-conf-dir` set FLINK_CONF_DIR.
   */
  private static final class JarlessInvoker extends FlinkJobInvoker {
    private JarlessInvoker(FlinkServerConfiguration configuration) {
      super(configuration);
    }

    @Override
    protected JobInvocation createJobInvocation(
        String id,
        String retrievalToken,
        ListeningExecutorService executor,
        Pipeline pipeline,
        FlinkPipelineOptions options,
        PortablePipelineRunner runner) {
      boolean sends = runner instanceof FlinkPipelineRunner;
      PortablePipelineRunner jarless =
          sends ? new SparingRunner(options, new FlinkPipelineRunner(options, null, List.of())) : runner;
      return super.createJobInvocation(id, retrievalToken, executor, pipeline, options, jarless);
    }
  }

  /** Beam's runner, which translates pipelines that end by {@link SparingTranslator}. */
  private static final class SparingRunner implements PortablePipelineRunner {
    private final FlinkPipelineOptions options;
    private final FlinkPipelineRunner runner;

    private SparingRunner(FlinkPipelineOptions options, FlinkPipelineRunner runner) {
      this.options = options;
      this.runner = runner;
    }

    @Override
    public PortablePipelineResult run(Pipeline pipeline, JobInfo job) throws Exception {
      if (options.isStreaming() || PipelineTranslatorUtils.hasUnboundedPCollections(pipeline)) {
        return runner.run(pipeline, job);
      }
      Class<?>[] kinds = {Pipeline.class, JobInfo.class, FlinkPortablePipelineTranslator.class};
      Method run = FlinkPipelineRunner.class.getDeclaredMethod("runPipelineWithTranslator", kinds);
      run.setAccessible(true);
      try {
        return (PortablePipelineResult) run.invoke(runner, pipeline, job, new SparingTranslator());
      } catch (InvocationTargetException error) {
        throw error.getCause() instanceof Exception ? (Exception) error.getCause() : error;
      }
    }
  }

  /**
   * Gives one task, not as many as the job has slots, to whatever is given all of its elements by one task.
   *
   * <p>That is what follows an impulse or a sum under one key, up to the next shuffle: of the tasks that Beam's own
   * translator makes of it all but one are empty. The sum itself is formed before that shuffle, by all tasks.
   */
  private static final class SparingTranslator
      implements FlinkPortablePipelineTranslator<BatchTranslationContext> {
    private static final Pattern OF_ONE_KEY = Pattern.compile(".*/(Sum|Total)/Group");
    private final FlinkBatchPortablePipelineTranslator beams = FlinkBatchPortablePipelineTranslator.createTranslator();

    @Override
    public BatchTranslationContext createTranslationContext(
        JobInfo job, FlinkPipelineOptions options, String folder, List<String> files) {
      return beams.createTranslationContext(job, options, folder, files);
    }

    @Override
    public Set<String> knownUrns() {
      return beams.knownUrns();
    }

    @Override
    public Executor translate(BatchTranslationContext context, Pipeline pipeline) {
      Executor executor = beams.translate(context, pipeline);
      Set<String> wide = new HashSet<>();
      QueryablePipeline steps =
          QueryablePipeline.forTransforms(pipeline.getRootTransformIdsList(), pipeline.getComponents());
      for (PTransformNode node : steps.getTopologicallyOrderedTransforms()) {
        PTransform each = node.getTransform();
        boolean inputIsWide = inputs(each).stream().anyMatch(wide::contains);
        if (isWide(each, inputIsWide)) {
          wide.addAll(each.getOutputsMap().values());
        }
        for (String output : each.getOutputsMap().values()) {
          if (!wide.contains(output)) {
            narrow(context.getDataSetOrThrow(output), inputIsWide);
          }
        }
      }
      for (DataSink<?> each : sinks(context.getExecutionEnvironment())) {
        narrowSink(each);
      }
      return executor;
    }

    private static boolean isWide(PTransform each, boolean inputIsWide) {
      switch (each.getSpec().getUrn()) {
        case PTransformTranslation.RESHUFFLE_URN:
          return true;
        case PTransformTranslation.GROUP_BY_KEY_TRANSFORM_URN:
          return !OF_ONE_KEY.matcher(each.getUniqueName()).matches();
        default:
          return inputIsWide;
      }
    }

    /** Inputs that are divided among tasks; side inputs are given to each. */
    private static Collection<String> inputs(PTransform each) {
      if (!each.getSpec().getUrn().equals(ExecutableStage.URN)) {
        return each.getInputsMap().values();
      }
      try {
        return List.of(ExecutableStagePayload.parseFrom(each.getSpec().getPayload()).getInput());
      } catch (IOException error) {
        throw new IllegalStateException(error);
      }
    }

    /** Gives one task to what Beam made of one step: its last operator, and those before it unless they are wide. */
    private static void narrow(DataSet<?> last, boolean inputIsWide) {
      DataSet<?> each = last;
      while (each instanceof Operator && ((Operator<?, ?>) each).getParallelism() != 1) {
        ((Operator<?, ?>) each).setParallelism(1);
        if (inputIsWide || !(each instanceof SingleInputOperator)) {
          return;
        }
        each = ((SingleInputOperator<?, ?, ?>) each).getInput();
      }
    }

    /** A sink has as many tasks as what it is given; so has a step before it that gives nothing to others. */
    private static void narrowSink(DataSink<?> sink) {
      DataSet<?> last = sink.getDataSet();
      DataSet<?> before = last instanceof SingleInputOperator ? ((SingleInputOperator<?, ?, ?>) last).getInput() : last;
      for (DataSet<?> each : List.of(last, before)) {
        if (each instanceof Operator && ((Operator<?, ?>) each).getParallelism() == 1) {
          narrow(last, false);
          sink.setParallelism(1);
        }
      }
    }

    @SuppressWarnings("unchecked")
    private static List<DataSink<?>> sinks(ExecutionEnvironment environment) {
      try {
        Field field = ExecutionEnvironment.class.getDeclaredField("sinks");
        field.setAccessible(true);
        return (List<DataSink<?>>) field.get(environment);
      } catch (ReflectiveOperationException error) {
        throw new IllegalStateException(error);
      }
    }
  }
}
