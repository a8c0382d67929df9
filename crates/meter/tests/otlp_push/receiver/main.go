// An OTLP metrics receiver made of the OpenTelemetry Collector's own data model: prints its address, then each
// exponential histogram it receives as a line of JSON.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"

	"go.opentelemetry.io/collector/pdata/pmetric"
	"go.opentelemetry.io/collector/pdata/pmetric/pmetricotlp"
	"google.golang.org/grpc"
)

type histogram struct {
	Name      string         `json:"name"`
	Labels    map[string]any `json:"labels"`
	Service   string         `json:"service"`
	Scale     int32          `json:"scale"`
	Offset    int32          `json:"offset"`
	Counts    []uint64       `json:"counts"`
	Zero      uint64         `json:"zero"`
	Count     uint64         `json:"count"`
	Sum       float64        `json:"sum"`
	Min       float64        `json:"min"`
	Max       float64        `json:"max"`
	TraceIDs  []string       `json:"trace_ids"`
	Temporal  string         `json:"temporality"`
	StartedNs int64          `json:"started_ns"`
}

type receiver struct {
	pmetricotlp.UnimplementedGRPCServer
}

func (*receiver) Export(_ context.Context, request pmetricotlp.ExportRequest) (pmetricotlp.ExportResponse, error) {
	resources := request.Metrics().ResourceMetrics()
	for i := 0; i < resources.Len(); i++ {
		service, _ := resources.At(i).Resource().Attributes().Get("service.name")
		scopes := resources.At(i).ScopeMetrics()
		for j := 0; j < scopes.Len(); j++ {
			metrics := scopes.At(j).Metrics()
			for k := 0; k < metrics.Len(); k++ {
				if metrics.At(k).Type() == pmetric.MetricTypeExponentialHistogram {
					show(metrics.At(k), service.Str())
				}
			}
		}
	}
	return pmetricotlp.NewExportResponse(), nil
}

func show(metric pmetric.Metric, service string) {
	points := metric.ExponentialHistogram().DataPoints()
	for i := 0; i < points.Len(); i++ {
		point := points.At(i)
		line := histogram{
			Name:      metric.Name(),
			Labels:    point.Attributes().AsRaw(),
			Service:   service,
			Scale:     point.Scale(),
			Offset:    point.Positive().Offset(),
			Counts:    point.Positive().BucketCounts().AsRaw(),
			Zero:      point.ZeroCount(),
			Count:     point.Count(),
			Sum:       point.Sum(),
			Min:       point.Min(),
			Max:       point.Max(),
			Temporal:  metric.ExponentialHistogram().AggregationTemporality().String(),
			StartedNs: point.StartTimestamp().AsTime().UnixNano(),
		}
		for j := 0; j < point.Exemplars().Len(); j++ {
			line.TraceIDs = append(line.TraceIDs, point.Exemplars().At(j).TraceID().String())
		}
		text, err := json.Marshal(line)
		if err != nil {
			panic(err)
		}
		fmt.Println(string(text))
	}
}

func main() {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Println(listener.Addr())
	server := grpc.NewServer()
	pmetricotlp.RegisterGRPCServer(server, &receiver{})
	if err := server.Serve(listener); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
