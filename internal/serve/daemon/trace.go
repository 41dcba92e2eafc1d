package daemon

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/propagation"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"
)

// Trace sends a span for every authenticated request to an OpenTelemetry collector. If the request has a traceparent
// header, the span is a child of the caller's span. A span contains the method, the route, the status and the agent's
// name, but no content.
type Trace struct {
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	incoming propagation.TraceContext
}

// TraceFromEnv returns a Trace that sends spans to OTEL_EXPORTER_OTLP_TRACES_ENDPOINT. If that variable is not set,
// spans go to the path /v1/traces of OTEL_EXPORTER_OTLP_ENDPOINT. If neither variable is set, TraceFromEnv returns
// nil and nothing is traced. TraceFromEnv also reads OTEL_EXPORTER_OTLP_HEADERS and OTEL_SERVICE_NAME.
func TraceFromEnv(getenv func(string) string, version string) (*Trace, error) {
	address := getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT")
	if address == "" {
		if address = getenv("OTEL_EXPORTER_OTLP_ENDPOINT"); address == "" {
			return nil, nil
		}
		address = strings.TrimSuffix(address, "/") + "/v1/traces"
	}
	u, err := url.Parse(address)
	if err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("the OTLP endpoint for traces is not an http or https URL (ambit sends OTLP over HTTP)")
	}
	e := &otlp{address: address, header: http.Header{}, client: &http.Client{Timeout: 10 * time.Second}}
	e.header.Set("Content-Type", "application/json")
	for pair := range strings.SplitSeq(getenv("OTEL_EXPORTER_OTLP_HEADERS"), ",") {
		if name, value, ok := strings.Cut(pair, "="); ok {
			if plain, err := url.PathUnescape(strings.TrimSpace(value)); err == nil {
				e.header.Set(strings.TrimSpace(name), plain)
			}
		}
	}
	service := cmp.Or(getenv("OTEL_SERVICE_NAME"), "ambit")
	t := &Trace{provider: sdk.NewTracerProvider(
		sdk.WithBatcher(e),
		sdk.WithResource(resource.NewSchemaless(
			attribute.String("service.name", service), attribute.String("service.version", version))),
	)}
	t.tracer = t.provider.Tracer("github.com/ambit-run/ambit")
	otel.SetTracerProvider(t.provider)
	return t, nil
}

// Close sends the remaining spans.
func (t *Trace) Close(ctx context.Context) error {
	if t == nil {
		return nil
	}
	return t.provider.Shutdown(ctx)
}

// begin starts the span of a request. The caller must use the returned writer and request from then on. The returned
// function ends the span.
func (t *Trace) begin(w http.ResponseWriter, r *http.Request, route string) (*statusWriter, *http.Request, func()) {
	ctx := t.incoming.Extract(r.Context(), propagation.HeaderCarrier(r.Header))
	ctx, span := t.tracer.Start(ctx, r.Method+" "+route, trace.WithSpanKind(trace.SpanKindServer),
		trace.WithAttributes(attribute.String("http.request.method", r.Method), attribute.String("http.route", route)))
	seen := &statusWriter{ResponseWriter: w, status: http.StatusOK}
	r = r.WithContext(ctx)
	return seen, r, func() {
		if name := r.PathValue("name"); name != "" {
			span.SetAttributes(attribute.String("ambit.agent", name))
		}
		span.SetAttributes(attribute.Int("http.response.status_code", seen.status))
		if seen.status >= http.StatusInternalServerError {
			span.SetStatus(codes.Error, "")
		}
		span.End()
	}
}

// statusWriter records the status of a response.
type statusWriter struct {
	http.ResponseWriter
	status int
}

func (w *statusWriter) WriteHeader(status int) {
	w.status = status
	w.ResponseWriter.WriteHeader(status)
}

// Unwrap lets an [http.ResponseController] find the wrapped writer.
func (w *statusWriter) Unwrap() http.ResponseWriter { return w.ResponseWriter }

// otlp sends spans in the JSON format of OTLP over HTTP. The official exporter is not used, because it would add gRPC
// and generated code to the binary.
type otlp struct {
	address string
	header  http.Header
	client  *http.Client
}

var _ sdk.SpanExporter = (*otlp)(nil)

// ExportSpans sends finished spans. Spans that cannot be sent are lost.
func (o *otlp) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	if len(spans) == 0 {
		return nil
	}
	list := make([]any, len(spans))
	for i, s := range spans {
		list[i] = otlpSpan(s)
	}
	scope := map[string]any{"name": spans[0].InstrumentationScope().Name}
	body, err := json.Marshal(map[string]any{"resourceSpans": []any{map[string]any{
		"resource":   map[string]any{"attributes": otlpAttributes(spans[0].Resource().Attributes())},
		"scopeSpans": []any{map[string]any{"scope": scope, "spans": list}},
	}}})
	if err != nil {
		return err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, o.address, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header = o.header.Clone()
	resp, err := o.client.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	_, _ = io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // a connection can be reused only if its response was read
	if resp.StatusCode/100 != 2 {
		return fmt.Errorf("the trace collector answered %s", resp.Status)
	}
	return nil
}

// Shutdown closes the idle connections to the collector.
func (o *otlp) Shutdown(context.Context) error {
	o.client.CloseIdleConnections()
	return nil
}

func otlpSpan(s sdk.ReadOnlySpan) map[string]any {
	m := map[string]any{
		"traceId": s.SpanContext().TraceID().String(), "spanId": s.SpanContext().SpanID().String(),
		"name": s.Name(), "kind": int(s.SpanKind()),
		"startTimeUnixNano": strconv.FormatInt(s.StartTime().UnixNano(), 10),
		"endTimeUnixNano":   strconv.FormatInt(s.EndTime().UnixNano(), 10),
		"attributes":        otlpAttributes(s.Attributes()), "flags": int(s.SpanContext().TraceFlags()),
	}
	if s.Parent().SpanID().IsValid() {
		m["parentSpanId"] = s.Parent().SpanID().String()
	}
	if s.Status().Code == codes.Error {
		m["status"] = map[string]any{"code": 2} // STATUS_CODE_ERROR in OTLP
	}
	return m
}

func otlpAttributes(list []attribute.KeyValue) []any {
	out := make([]any, len(list))
	for i, kv := range list {
		value := map[string]any{"stringValue": kv.Value.String()}
		if kv.Value.Type() == attribute.INT64 {
			value = map[string]any{"intValue": strconv.FormatInt(kv.Value.AsInt64(), 10)}
		}
		out[i] = map[string]any{"key": string(kv.Key), "value": value}
	}
	return out
}
