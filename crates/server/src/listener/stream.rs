//! The byte stream of a connection, with timeouts.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, Sleep};

/// Limit from the first to the last byte of a request's head.
const HEAD_TIMEOUT: Duration = Duration::from_secs(10);
/// Limit between two requests: longer than the minute for which proxies usually keep connections.
const IDLE_TIMEOUT: Duration = Duration::from_secs(75);
/// While the server waits to send an answer, a client must receive [`MIN_PROGRESS_BYTES`] within
/// this time, or it is disconnected. Until then the answer counts towards its tenant's share of
/// memory.
const WRITE_TIMEOUT: Duration = Duration::from_secs(30);
const MIN_PROGRESS_BYTES: usize = 256 << 10;

/// Requests of one connection, as the service reports them to the stream.
#[derive(Debug, Default)]
pub(super) struct Activity {
    is_running: AtomicBool,
    begun: AtomicU64,
}

/// Dropped when the answer is written.
#[derive(Debug)]
pub(super) struct RunningRequest(Arc<Activity>);

impl Activity {
    /// Records that the head of a request was read.
    pub(super) fn begin(self: &Arc<Self>) -> RunningRequest {
        self.begun.fetch_add(1, Ordering::Relaxed);
        self.is_running.store(true, Ordering::Relaxed);
        RunningRequest(Arc::clone(self))
    }
}

impl Drop for RunningRequest {
    fn drop(&mut self) {
        self.0.is_running.store(false, Ordering::Relaxed);
    }
}

/// The next input while no request is running.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AwaitedInput {
    /// The first byte of the next request.
    Request,
    /// The rest of the request's head.
    Head,
}

/// Fails when the client is too slow.
#[derive(Debug)]
pub(super) struct WatchedStream<S> {
    stream: S,
    activity: Arc<Activity>,
    awaited: AwaitedInput,
    /// Number of requests begun when the idle timer was last set.
    begun: u64,
    timer: Pin<Box<Sleep>>,
    /// Set while the server waits for the client.
    waiting: Option<ClientWait>,
}

#[derive(Debug)]
struct ClientWait {
    until: Pin<Box<Sleep>>,
    /// Number of the request that is being answered.
    request: u64,
    /// Bytes that the client received since the timer was set.
    taken_bytes: usize,
}

impl<S> WatchedStream<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self {
            stream,
            activity,
            // A new client should send a request at once, so it only has the time limit of a head.
            awaited: AwaitedInput::Head,
            begun: 0,
            timer: Box::pin(tokio::time::sleep(HEAD_TIMEOUT)),
            waiting: None,
        }
    }

    fn await_next(&mut self, awaited: AwaitedInput, timeout: Duration) {
        self.awaited = awaited;
        self.timer.as_mut().reset(Instant::now() + timeout);
    }

    /// Returns the result of a write, or an error if the client has received too little for too
    /// long.
    fn unless_stalled<T>(
        &mut self,
        written: Poll<io::Result<T>>,
        bytes_of: impl Fn(&T) -> usize,
        context: &mut Context<'_>,
    ) -> Poll<io::Result<T>> {
        let request = self.activity.begun.load(Ordering::Relaxed);
        // An earlier answer was received completely, however slowly.
        self.waiting.take_if(|waiting| waiting.request != request);
        if let Poll::Ready(written) = written {
            if let (Some(waiting), Ok(written)) = (&mut self.waiting, &written) {
                waiting.taken_bytes += bytes_of(written);
            }
            self.waiting.take_if(|waiting| waiting.taken_bytes >= MIN_PROGRESS_BYTES);
            return Poll::Ready(written);
        }
        let waiting = self.waiting.get_or_insert_with(|| ClientWait {
            until: Box::pin(tokio::time::sleep(WRITE_TIMEOUT)),
            request,
            taken_bytes: 0,
        });
        ready!(waiting.until.as_mut().poll(context));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for WatchedStream<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let is_running = self.activity.is_running.load(Ordering::Relaxed);
        let begun = self.activity.begun.load(Ordering::Relaxed);
        if !is_running && begun != self.begun {
            self.begun = begun;
            self.await_next(AwaitedInput::Request, IDLE_TIMEOUT);
        }
        let filled_before = buffer.filled().len();
        if let Poll::Ready(read) = Pin::new(&mut self.stream).poll_read(context, buffer) {
            let is_more = buffer.filled().len() > filled_before;
            if is_more && !is_running && self.awaited == AwaitedInput::Request {
                self.await_next(AwaitedInput::Head, HEAD_TIMEOUT);
            }
            return Poll::Ready(read);
        }
        if is_running {
            return Poll::Pending;
        }
        ready!(self.timer.as_mut().poll(context));
        match self.awaited {
            // The same result as when the client closes the connection.
            AwaitedInput::Request => Poll::Ready(Ok(())),
            AwaitedInput::Head => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
        }
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for WatchedStream<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, bytes);
        self.unless_stalled(written, |bytes| *bytes, context)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, slices);
        self.unless_stalled(written, |bytes| *bytes, context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.stream).poll_flush(context);
        self.unless_stalled(flushed, |()| 0, context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let shut = Pin::new(&mut self.stream).poll_shutdown(context);
        self.unless_stalled(shut, |()| 0, context)
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

    use super::*;

    fn watched() -> (WatchedStream<DuplexStream>, DuplexStream, Arc<Activity>) {
        let (near, far) = tokio::io::duplex(8);
        let activity = Arc::new(Activity::default());
        (WatchedStream::new(near, Arc::clone(&activity)), far, activity)
    }

    async fn read(stream: &mut WatchedStream<DuplexStream>) -> Result<usize, io::ErrorKind> {
        stream.read(&mut [0; 8]).await.map_err(|error| error.kind())
    }

    #[tokio::test(start_paused = true)]
    async fn idle_timeout_begins_with_the_end_of_each_request() {
        let (mut stream, mut far, activity) = watched();
        let mut begun = Instant::now();
        for running_for in [0, 3_600] {
            far.write_all(b"request").await.unwrap();
            assert_eq!(read(&mut stream).await, Ok(7));
            let running = activity.begin();
            let running_for = Duration::from_secs(running_for);
            assert!(tokio::time::timeout(running_for, read(&mut stream)).await.is_err());
            drop(running);
            begun = Instant::now();
            assert!(tokio::time::timeout(IDLE_TIMEOUT / 2, read(&mut stream)).await.is_err());
        }
        assert_eq!(read(&mut stream).await, Ok(0));
        assert_eq!(begun.elapsed().as_secs(), IDLE_TIMEOUT.as_secs());
    }

    /// Receives an answer of four parts, one part of `part_bytes` in each half
    /// of the timeout.
    async fn taken_in_parts(part_bytes: usize) -> io::Result<()> {
        let (near, mut far) = tokio::io::duplex(part_bytes);
        let activity = Arc::new(Activity::default());
        let mut stream = WatchedStream::new(near, Arc::clone(&activity));
        let _running = activity.begin();
        let taking = tokio::spawn(async move {
            let mut part = vec![0; part_bytes];
            loop {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
                if far.read_exact(&mut part).await.is_err() {
                    return;
                }
            }
        });
        let written = stream.write_all(&vec![0; 4 * part_bytes]).await;
        drop(stream);
        taking.await.unwrap();
        written
    }

    #[tokio::test(start_paused = true)]
    async fn slow_client_is_disconnected() {
        assert!(taken_in_parts(MIN_PROGRESS_BYTES).await.is_ok());
        let begun = Instant::now();
        let trickling = taken_in_parts(MIN_PROGRESS_BYTES / 8).await;
        assert_eq!(trickling.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert_eq!(begun.elapsed().as_secs() / WRITE_TIMEOUT.as_secs(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn write_timeout_restarts_with_each_answer() {
        let (mut stream, mut far, activity) = watched();
        for _ in 0..3 {
            let running = activity.begin();
            let taking = async {
                tokio::time::sleep(WRITE_TIMEOUT / 2).await;
                far.read_exact(&mut [0; 16]).await.unwrap();
            };
            let (written, ()) = tokio::join!(stream.write_all(&[0; 16]), taking);
            written.unwrap();
            drop(running);
            tokio::time::sleep(WRITE_TIMEOUT).await;
        }
    }
}
