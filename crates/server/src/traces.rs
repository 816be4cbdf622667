//! Requests as traces: the log's spans, sent to a collector by OTLP over HTTP.
//!
//! A span is a request from its head to the last byte of its answer; where the client sends `traceparent` it is a part of
//! the client's trace. Attributes follow OpenTelemetry's conventions for HTTP servers and generative models. Prompts and
//! answers are not among them.
//!
//! Source: <https://opentelemetry.io/docs/specs/otlp/>, <https://www.w3.org/TR/trace-context/>

use axum::http::HeaderMap;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::TracerProvider;
use opentelemetry_http::{Bytes, HeaderExtractor, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig, WithHttpConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use opentelemetry_sdk::trace::{SdkTracer, SdkTracerProvider};
use std::future::Future;
use std::pin::Pin;
use std::time::Duration;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;
use ureq::Agent;

/// What the process is called in traces.
const SERVICE: &str = "gannet";
/// Time for a collector to take spans.
const PATIENCE: Duration = Duration::from_secs(10);

/// The way to a collector; when this is dropped, what is left is sent.
pub struct Traces {
    provider: SdkTracerProvider,
}

impl Traces {
    /// Sends spans to a collector, such as `http://127.0.0.1:4318`, from a thread of its own.
    ///
    /// # Errors
    /// The address is none.
    pub fn to(collector: &str) -> Result<Self, ExporterBuildError> {
        let config = Agent::config_builder().timeout_global(Some(PATIENCE)).http_status_as_error(false);
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(Client(config.build().into()))
            .with_endpoint(format!("{}/v1/traces", collector.trim_end_matches('/')))
            .build()?;
        let resource = Resource::builder().with_service_name(SERVICE).build();
        let provider =
            SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build();
        Ok(Self { provider })
    }

    pub(crate) fn tracer(&self) -> SdkTracer {
        self.provider.tracer(SERVICE)
    }
}

impl Drop for Traces {
    fn drop(&mut self) {
        // A collector that is gone gets nothing.
        let _ = self.provider.shutdown();
    }
}

/// Makes a span a part of the trace that a request belongs to.
pub(crate) fn adopt(span: &Span, headers: &HeaderMap) {
    let parent = TraceContextPropagator::new().extract(&HeaderExtractor(headers));
    // Without a layer for traces there is nothing to be a part of.
    let _ = span.set_parent(parent);
}

/// HTTP for the exporter, whose thread may wait.
#[derive(Debug)]
struct Client(Agent);

impl HttpClient for Client {
    fn send_bytes<'a, 'b>(
        &'a self,
        request: Request<Bytes>,
    ) -> Pin<Box<dyn Future<Output = Result<Response<Bytes>, HttpError>> + Send + 'b>>
    where
        'a: 'b,
    {
        Box::pin(async move { self.send(request) })
    }
}

impl Client {
    fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let (head, body) = request.into_parts();
        let response = self.0.run(Request::from_parts(head, body.to_vec()))?;
        let (head, mut body) = response.into_parts();
        Ok(Response::from_parts(head, body.read_to_vec()?.into()))
    }
}
