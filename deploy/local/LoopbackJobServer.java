import java.io.IOException;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.util.List;
import org.apache.beam.model.pipeline.v1.Endpoints.ApiServiceDescriptor;
import org.apache.beam.model.pipeline.v1.RunnerApi.Pipeline;
import org.apache.beam.runners.flink.FlinkJobInvoker;
import org.apache.beam.runners.flink.FlinkJobServerDriver;
import org.apache.beam.runners.flink.FlinkJobServerDriver.FlinkServerConfiguration;
import org.apache.beam.runners.flink.FlinkPipelineOptions;
import org.apache.beam.runners.flink.FlinkPipelineRunner;
import org.apache.beam.runners.jobsubmission.JobInvocation;
import org.apache.beam.runners.jobsubmission.JobServerDriver;
import org.apache.beam.runners.jobsubmission.JobServerDriver.JobInvokerFactory;
import org.apache.beam.runners.jobsubmission.PortablePipelineRunner;
import org.apache.beam.sdk.fn.server.GrpcContextHeaderAccessorProvider;
import org.apache.beam.sdk.fn.server.ServerFactory;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.BindableService;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.Server;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.ServerInterceptors;
import org.apache.beam.vendor.grpc.v1p60p1.io.grpc.netty.NettyServerBuilder;
import org.apache.beam.vendor.guava.v32_1_2_jre.com.google.common.util.concurrent.ListeningExecutorService;

/**
 * Beam's job server for Flink on loopback, with the words of its own command.
 *
 * <p>Its own listens on every network interface whatever its host is called, and whoever reaches it can run code.
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
   * Sends jobs without jars: their classes lie in Flink's lib, and Beam's own invoker sends the whole class path.
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
      PortablePipelineRunner jarless = sends ? new FlinkPipelineRunner(options, null, List.of()) : runner;
      return super.createJobInvocation(id, retrievalToken, executor, pipeline, options, jarless);
    }
  }
}
