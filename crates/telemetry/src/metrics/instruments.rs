//! The instruments with their names, units and buckets.

use opentelemetry::metrics::{Counter, Gauge, Histogram, Meter, UpDownCounter};

/// Buckets in seconds for requests and calls: from a cache hit to a deadline.
const CALL_SECONDS: [f64; 16] =
    [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets in seconds for job runs: from no work to a scan of the whole blob store.
const JOB_SECONDS: [f64; 11] = [0.01, 0.1, 0.5, 1.0, 5.0, 10.0, 30.0, 60.0, 300.0, 900.0, 3_600.0];

/// Declares the instruments, each with the function of this module that creates it.
macro_rules! instruments {
    ($($field:ident: $type:ty = $create:ident($name:literal, $description:literal);)*) => {
        pub(super) struct Instruments {
            /// For values that are read at each export.
            pub(super) meter: Meter,
            $(pub(super) $field: $type,)*
        }

        impl Instruments {
            pub(super) fn new(meter: &Meter) -> Self {
                Self { meter: meter.clone(), $($field: $create(meter, $name, $description),)* }
            }
        }
    };
}

instruments! {
    requests: Counter<u64> = counter("keepsake.http.requests", "Answered requests");
    request_durations: Histogram<f64> =
        call_seconds("keepsake.http.request.duration", "Duration of requests until their responses start");
    requests_in_flight: UpDownCounter<i64> =
        up_down_counter("keepsake.http.requests_in_flight", "Requests under way");
    index_calls: Histogram<f64> = call_seconds("keepsake.index.call.duration", "Duration of index calls");
    blob_calls: Histogram<f64> = call_seconds("keepsake.blob.call.duration", "Duration of blob store calls");
    blob_breaker_open: Gauge<u64> =
        count("keepsake.blob.breaker_open", "Whether the circuit breaker refuses blob store calls");
    blob_breaker_refusals: Counter<u64> =
        counter("keepsake.blob.breaker_refusals", "Blob store calls refused by the open circuit breaker");
    blob_bytes: Counter<u64> =
        counter("keepsake.blob.bytes", "Bytes read from the blob store and written to it");
    cache_lookups: Counter<u64> = counter("keepsake.cache.lookups", "Cache lookups");
    retries: Counter<u64> = counter("keepsake.retries", "Retried steps of changes");
    conflicts: Counter<u64> = counter("keepsake.conflicts", "Changes answered with a conflict");
    quota_refusals: Counter<u64> = counter("keepsake.quota_refusals", "Changes refused by a quota");
    rate_refusals: Counter<u64> = counter("keepsake.rate_refusals", "Requests that were not admitted");
    dropped_reads: Counter<u64> =
        counter("keepsake.dropped_reads", "Reads of memories that are missing in the record of readers");
    searches: Counter<u64> = counter("keepsake.searches", "Searches, and whether they used meaning");
    embedding_time: Counter<f64> = seconds(
        "keepsake.embedding.time",
        "Processor time of the embedded model, or time in which the endpoint was awaited"
    );
    embedding_bytes: Counter<u64> =
        counter("keepsake.embedding.bytes", "Bytes of texts whose embeddings were computed");
    embedding_chunks: Counter<u64> =
        counter("keepsake.embedding.chunks", "Chunks of memories whose embeddings were stored");
    embedding_failures: Counter<u64> =
        counter("keepsake.embedding.failures", "Failures while memories were embedded");
    embedding_breaker_open: Gauge<u64> =
        count("keepsake.embedding.breaker_open", "Whether searches do without the embeddings endpoint");
    job_runs: Counter<u64> = counter("keepsake.job.runs", "Finished runs of scheduled jobs");
    job_durations: Histogram<f64> =
        job_seconds("keepsake.job.run.duration", "Duration of scheduled job runs");
    job_items: Counter<u64> = counter("keepsake.job.items", "Items processed by scheduled jobs");
    job_last_success: Gauge<f64> = time(
        "keepsake.job.last_success_timestamp",
        "Time of the last successful run of a job in this process"
    );
    stored_stores: Gauge<u64> = count("keepsake.stored.stores", "Stores of all tenants");
    stored_memories: Gauge<u64> = count("keepsake.stored.memories", "Live memories of all tenants");
    stored_versions: Gauge<u64> = count("keepsake.stored.versions", "Retained versions of all tenants");
    stored_size: Gauge<u64> = bytes("keepsake.stored.size", "Content of all tenants");
    process_start_time: Gauge<f64> = time("keepsake.process.start_time", "Start time of this process");
}

fn counter(meter: &Meter, name: &'static str, description: &'static str) -> Counter<u64> {
    meter.u64_counter(name).with_description(description).build()
}

fn seconds(meter: &Meter, name: &'static str, description: &'static str) -> Counter<f64> {
    meter.f64_counter(name).with_unit("s").with_description(description).build()
}

fn up_down_counter(meter: &Meter, name: &'static str, description: &'static str) -> UpDownCounter<i64> {
    meter.i64_up_down_counter(name).with_description(description).build()
}

fn call_seconds(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
    histogram.with_boundaries(CALL_SECONDS.to_vec()).build()
}

fn job_seconds(meter: &Meter, name: &'static str, description: &'static str) -> Histogram<f64> {
    let histogram = meter.f64_histogram(name).with_unit("s").with_description(description);
    histogram.with_boundaries(JOB_SECONDS.to_vec()).build()
}

fn time(meter: &Meter, name: &'static str, description: &'static str) -> Gauge<f64> {
    meter.f64_gauge(name).with_unit("s").with_description(description).build()
}

fn count(meter: &Meter, name: &'static str, description: &'static str) -> Gauge<u64> {
    meter.u64_gauge(name).with_description(description).build()
}

fn bytes(meter: &Meter, name: &'static str, description: &'static str) -> Gauge<u64> {
    meter.u64_gauge(name).with_unit("By").with_description(description).build()
}
