// Command sdk-go makes calls between two services that are instrumented as users instrument theirs: with the
// OpenTelemetry SDK, its exporters and its instrumentation of net/http and gRPC.
//
//	sdk-go -protocol grpc|http -endpoint HOST:PORT -calls N [-gzip]
//
// grpc: gRPC calls, spans sent by OTLP over gRPC. http: HTTP calls, spans sent by OTLP over HTTP.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"time"

	"go.opentelemetry.io/contrib/instrumentation/google.golang.org/grpc/otelgrpc"
	"go.opentelemetry.io/contrib/instrumentation/net/http/otelhttp"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracegrpc"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	"google.golang.org/grpc/health/grpc_health_v1"
)

var propagator = propagation.TraceContext{}

func main() {
	protocol := flag.String("protocol", "grpc", "grpc or http")
	endpoint := flag.String("endpoint", "", "HOST:PORT of the OTLP receiver")
	calls := flag.Int("calls", 10, "calls to make")
	gzip := flag.Bool("gzip", false, "compress what is sent")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	if err := run(ctx, *protocol, *endpoint, *calls, *gzip); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, protocol, endpoint string, calls int, gzip bool) error {
	client, err := provider(ctx, protocol, endpoint, gzip, "go-client")
	if err != nil {
		return err
	}
	server, err := provider(ctx, protocol, endpoint, gzip, "go-server")
	if err != nil {
		return err
	}
	switch protocol {
	case "grpc":
		err = grpcCalls(ctx, client, server, calls)
	case "http":
		err = httpCalls(ctx, client, server, calls)
	default:
		err = fmt.Errorf("protocol %q: expected grpc or http", protocol)
	}
	if err != nil {
		return err
	}
	// Shutdown sends what is left, and tells when that was refused.
	if err := client.Shutdown(ctx); err != nil {
		return err
	}
	return server.Shutdown(ctx)
}

func provider(ctx context.Context, protocol, endpoint string, gzip bool, service string) (*trace.TracerProvider, error) {
	var exporter trace.SpanExporter
	var err error
	if protocol == "grpc" {
		options := []otlptracegrpc.Option{otlptracegrpc.WithEndpoint(endpoint), otlptracegrpc.WithInsecure()}
		if gzip {
			options = append(options, otlptracegrpc.WithCompressor("gzip"))
		}
		exporter, err = otlptracegrpc.New(ctx, options...)
	} else {
		options := []otlptracehttp.Option{otlptracehttp.WithEndpoint(endpoint), otlptracehttp.WithInsecure()}
		if gzip {
			options = append(options, otlptracehttp.WithCompression(otlptracehttp.GzipCompression))
		}
		exporter, err = otlptracehttp.New(ctx, options...)
	}
	if err != nil {
		return nil, err
	}
	about := resource.NewSchemaless(attribute.String("service.name", service), attribute.String("host.name", service+"-host"))
	return trace.NewTracerProvider(trace.WithBatcher(exporter), trace.WithResource(about)), nil
}

func grpcCalls(ctx context.Context, client, server *trace.TracerProvider, calls int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	served := grpc.NewServer(grpc.StatsHandler(otelgrpc.NewServerHandler(
		otelgrpc.WithTracerProvider(server), otelgrpc.WithPropagators(propagator))))
	grpc_health_v1.RegisterHealthServer(served, health.NewServer())
	go served.Serve(listener)
	connection, err := grpc.NewClient(listener.Addr().String(),
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithStatsHandler(otelgrpc.NewClientHandler(
			otelgrpc.WithTracerProvider(client), otelgrpc.WithPropagators(propagator))))
	if err != nil {
		return err
	}
	defer connection.Close()
	stub := grpc_health_v1.NewHealthClient(connection)
	for range calls {
		if _, err := stub.Check(ctx, &grpc_health_v1.HealthCheckRequest{}); err != nil {
			return err
		}
	}
	// Waits for the handlers: a server's span ends after its answer is sent.
	served.GracefulStop()
	return nil
}

func httpCalls(ctx context.Context, client, server *trace.TracerProvider, calls int) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	hello := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { io.WriteString(w, "hello") })
	served := &http.Server{Handler: otelhttp.NewHandler(hello, "hello",
		otelhttp.WithTracerProvider(server), otelhttp.WithPropagators(propagator))}
	go served.Serve(listener)
	caller := http.Client{Transport: otelhttp.NewTransport(http.DefaultTransport,
		otelhttp.WithTracerProvider(client), otelhttp.WithPropagators(propagator))}
	for range calls {
		request, err := http.NewRequestWithContext(ctx, "GET", "http://"+listener.Addr().String()+"/", nil)
		if err != nil {
			return err
		}
		answer, err := caller.Do(request)
		if err != nil {
			return err
		}
		// The client's span ends when the body is read to its end.
		if _, err := io.Copy(io.Discard, answer.Body); err != nil {
			return err
		}
		answer.Body.Close()
	}
	return served.Shutdown(ctx)
}
