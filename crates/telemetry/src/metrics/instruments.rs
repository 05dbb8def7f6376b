//! The instruments with their names, units and buckets.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

/// Buckets in seconds for requests and calls: from a cache hit to a deadline.
const CALL_SECONDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets in seconds for job runs: from no work to a scan of the whole blob store.
const JOB_SECONDS: [f64; 11] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0];

pub(super) struct Instruments {
    /// For values that are read at each export.
    pub(super) meter: Meter,
    pub(super) requests: Counter<u64>,
    pub(super) request_durations: Histogram<f64>,
    pub(super) requests_in_flight: UpDownCounter<i64>,
    pub(super) index_calls: Histogram<f64>,
    pub(super) blob_calls: Histogram<f64>,
    pub(super) blob_breaker_open: Gauge<u64>,
    pub(super) blob_breaker_refusals: Counter<u64>,
    pub(super) blob_bytes: Counter<u64>,
    pub(super) cache_lookups: Counter<u64>,
    pub(super) retries: Counter<u64>,
    pub(super) conflicts: Counter<u64>,
    pub(super) quota_refusals: Counter<u64>,
    pub(super) rate_refusals: Counter<u64>,
    pub(super) job_runs: Counter<u64>,
    pub(super) job_durations: Histogram<f64>,
    pub(super) job_items: Counter<u64>,
    pub(super) job_last_success: Gauge<f64>,
    pub(super) stored_stores: Gauge<u64>,
    pub(super) stored_memories: Gauge<u64>,
    pub(super) stored_versions: Gauge<u64>,
    pub(super) stored_size: Gauge<u64>,
    pub(super) process_start_time: Gauge<f64>,
}

impl Instruments {
    pub(super) fn new(meter: &Meter) -> Self {
        let counter = |name: &'static str, description: &'static str| {
            let counter = meter.u64_counter(name);
            counter.with_description(description).build()
        };
        let seconds = |name: &'static str, description: &'static str, buckets: &[f64]| {
            let histogram = meter.f64_histogram(name).with_unit("s");
            let histogram = histogram.with_boundaries(buckets.to_vec());
            histogram.with_description(description).build()
        };
        let time = |name: &'static str, description: &'static str| {
            let gauge = meter.f64_gauge(name).with_unit("s");
            gauge.with_description(description).build()
        };
        let count = |name: &'static str, description: &'static str| {
            let gauge = meter.u64_gauge(name);
            gauge.with_description(description).build()
        };
        Self {
            meter: meter.clone(),
            requests: counter("keepsake.http.requests", "Answered requests"),
            request_durations: seconds(
                "keepsake.http.request.duration",
                "Duration of requests until their responses start",
                &CALL_SECONDS,
            ),
            requests_in_flight: meter
                .i64_up_down_counter("keepsake.http.requests_in_flight")
                .with_description("Requests under way")
                .build(),
            index_calls: seconds("keepsake.index.call.duration", "Duration of index calls", &CALL_SECONDS),
            blob_calls: seconds("keepsake.blob.call.duration", "Duration of blob store calls", &CALL_SECONDS),
            blob_breaker_open: meter
                .u64_gauge("keepsake.blob.breaker_open")
                .with_description("Whether the circuit breaker refuses blob store calls")
                .build(),
            blob_breaker_refusals: counter(
                "keepsake.blob.breaker_refusals",
                "Blob store calls refused by the open circuit breaker",
            ),
            blob_bytes: counter("keepsake.blob.bytes", "Bytes read from the blob store and written to it"),
            cache_lookups: counter("keepsake.cache.lookups", "Cache lookups"),
            retries: counter("keepsake.retries", "Retried steps of changes"),
            conflicts: counter("keepsake.conflicts", "Changes answered with a conflict"),
            quota_refusals: counter("keepsake.quota_refusals", "Changes refused by a quota"),
            rate_refusals: counter("keepsake.rate_refusals", "Requests that were not admitted"),
            job_runs: counter("keepsake.job.runs", "Finished runs of scheduled jobs"),
            job_durations: seconds(
                "keepsake.job.run.duration",
                "Duration of scheduled job runs",
                &JOB_SECONDS,
            ),
            job_items: counter("keepsake.job.items", "Items processed by scheduled jobs"),
            job_last_success: time(
                "keepsake.job.last_success_timestamp",
                "Time of the last successful run of a job in this process",
            ),
            stored_stores: count("keepsake.stored.stores", "Stores of all tenants"),
            stored_memories: count("keepsake.stored.memories", "Live memories of all tenants"),
            stored_versions: count("keepsake.stored.versions", "Retained versions of all tenants"),
            stored_size: meter
                .u64_gauge("keepsake.stored.size")
                .with_unit("By")
                .with_description("Content of all tenants")
                .build(),
            process_start_time: time("keepsake.process.start_time", "Start time of this process"),
        }
    }
}
