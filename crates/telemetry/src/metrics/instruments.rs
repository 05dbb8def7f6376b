//! The instruments by their names, units and buckets.

use std::time::Duration;

use opentelemetry::KeyValue;
use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

/// Seconds of a request and of a call: from a cache's answer to a deadline.
const CALL_SECONDS: [f64; 16] = [
    0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Seconds of a job's run: from nothing to do to a whole bucket.
const JOB_SECONDS: [f64; 11] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0];

pub(super) struct Instruments {
    meter: Meter,
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
        Self {
            meter: meter.clone(),
            requests: counter("keepsake.http.requests", "Requests that were answered"),
            request_durations: seconds(
                "keepsake.http.request.duration",
                "How long requests took until their answers began",
                &CALL_SECONDS,
            ),
            requests_in_flight: meter
                .i64_up_down_counter("keepsake.http.requests_in_flight")
                .with_description("Requests under way")
                .build(),
            index_calls: seconds(
                "keepsake.index.call.duration",
                "How long calls of the index took",
                &CALL_SECONDS,
            ),
            blob_calls: seconds(
                "keepsake.blob.call.duration",
                "How long calls of the blob store took",
                &CALL_SECONDS,
            ),
            blob_breaker_open: meter
                .u64_gauge("keepsake.blob.breaker_open")
                .with_description("Whether calls of the blob store are refused until it answers a probe")
                .build(),
            blob_breaker_refusals: counter(
                "keepsake.blob.breaker_refusals",
                "Calls of the blob store that the open breaker refused",
            ),
            blob_bytes: counter(
                "keepsake.blob.bytes",
                "Bytes that came from the blob store and went to it",
            ),
            cache_lookups: counter("keepsake.cache.lookups", "Looks into a cache"),
            retries: counter("keepsake.retries", "Steps of changes that were done once more"),
            conflicts: counter("keepsake.conflicts", "Changes answered with a conflict"),
            quota_refusals: counter(
                "keepsake.quota_refusals",
                "Changes that a limit of what is stored refused",
            ),
            rate_refusals: counter("keepsake.rate_refusals", "Requests that were not admitted"),
            job_runs: counter("keepsake.job.runs", "Runs of scheduled jobs that ended"),
            job_durations: seconds(
                "keepsake.job.run.duration",
                "How long runs of scheduled jobs took",
                &JOB_SECONDS,
            ),
            job_items: counter("keepsake.job.items", "What runs of scheduled jobs did"),
            job_last_success: time(
                "keepsake.job.last_success_timestamp",
                "When this process last ran a job to its end",
            ),
            process_start_time: time("keepsake.process.start_time", "When this process started"),
        }
    }

    /// Is asked when metrics are read what a cache holds.
    pub(super) fn watch_cache_size(
        &self,
        cache: &'static str,
        bytes: impl Fn() -> Option<u64> + Send + Sync + 'static,
    ) {
        self.meter
            .u64_observable_gauge("keepsake.cache.size")
            .with_unit("By")
            .with_description("What a cache holds")
            .with_callback(move |gauge| {
                if let Some(bytes) = bytes() {
                    gauge.observe(bytes, &[KeyValue::new("cache", cache)]);
                }
            })
            .build();
    }

    /// Is asked when metrics are read how far access times lag behind.
    pub(super) fn watch_access_flush_lag(&self, lag: impl Fn() -> Option<Duration> + Send + Sync + 'static) {
        self.meter
            .f64_observable_gauge("keepsake.access_flush_lag")
            .with_unit("s")
            .with_description("How long ago everything read until then was written as read")
            .with_callback(move |gauge| {
                if let Some(lag) = lag() {
                    gauge.observe(lag.as_secs_f64(), &[]);
                }
            })
            .build();
    }
}
