//! One connection: two pumps that obey its rules.

use std::io;

use bytes::{Buf, Bytes};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::{Flow, Rules};

const READ_BYTES: usize = 16 * 1024;
/// Reads that may wait in the proxy, in each direction.
const QUEUED_READS: usize = 256;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Direction {
    ToServer,
    ToClient,
}

/// Why a connection ends before both sides have closed it.
#[derive(Debug)]
enum EndReason {
    Broken,
    Cut,
}

impl From<io::Error> for EndReason {
    fn from(_: io::Error) -> Self {
        Self::Broken
    }
}

/// Bytes and the time when they may pass; `None` is the end of the stream.
type Chunk = (Instant, Option<Bytes>);

/// Passes bytes in both directions until either side or a fault ends it.
pub(super) async fn pass(
    mut client: TcpStream,
    upstream: &str,
    rules: &watch::Sender<Rules>,
    mut subscription: watch::Receiver<Rules>,
) -> io::Result<()> {
    let mut server = match TcpStream::connect(upstream).await {
        Ok(server) => server,
        Err(error) => {
            client.set_zero_linger()?;
            return Err(error);
        }
    };
    client.set_nodelay(true)?;
    server.set_nodelay(true)?;
    let is_forgotten = {
        let (from_client, to_client) = client.split();
        let (from_server, to_server) = server.split();
        let pumps = async {
            tokio::try_join!(
                pump(from_client, to_server, rules, Direction::ToServer),
                pump(from_server, to_client, rules, Direction::ToClient),
            )
        };
        tokio::select! {
            ended = pumps => {
                let is_broken = matches!(ended, Err(EndReason::Broken));
                rules.send_modify(|rules| rules.is_reset |= is_broken);
                false
            }
            rules = subscription.wait_for(|rules| rules.is_reset || rules.is_forgotten) => {
                rules.is_ok_and(|rules| !rules.is_reset)
            }
        }
    };
    if is_forgotten {
        server.set_zero_linger()?;
        drop(server);
        swallow(&mut client, &mut subscription).await;
    } else if subscription.borrow().is_reset {
        server.set_zero_linger()?;
        client.set_zero_linger()?;
    }
    Ok(())
}

/// Reads and throws away until the client gives up or the connection is reset.
async fn swallow(client: &mut TcpStream, rules: &mut watch::Receiver<Rules>) {
    let reads = async {
        let mut buffer = vec![0; READ_BYTES];
        while matches!(client.read(&mut buffer).await, Ok(length) if length > 0) {}
    };
    tokio::select! {
        () = reads => {}
        _ = rules.wait_for(|rules| rules.is_reset) => {}
    }
}

/// Passes one direction on until its end; an error ends both.
async fn pump(
    from: ReadHalf<'_>,
    to: WriteHalf<'_>,
    rules: &watch::Sender<Rules>,
    direction: Direction,
) -> Result<(), EndReason> {
    let (sender, receiver) = mpsc::channel(QUEUED_READS);
    tokio::try_join!(read_chunks(from, rules, sender), write_chunks(receiver, to, rules, direction),)?;
    Ok(())
}

async fn read_chunks(
    mut from: ReadHalf<'_>,
    rules: &watch::Sender<Rules>,
    sender: mpsc::Sender<Chunk>,
) -> Result<(), EndReason> {
    let mut buffer = vec![0; READ_BYTES];
    loop {
        let length = match from.read(&mut buffer).await {
            Ok(length) => length,
            // The other side of a silent connection does not see a RST either.
            Err(_) if rules.borrow().flow == Flow::Silent => 0,
            Err(error) => return Err(error.into()),
        };
        let passes_at = Instant::now() + rules.borrow().delay;
        let bytes = (length > 0).then(|| Bytes::copy_from_slice(&buffer[..length]));
        if sender.send((passes_at, bytes)).await.is_err() || length == 0 {
            return Ok(());
        }
    }
}

async fn write_chunks(
    mut receiver: mpsc::Receiver<Chunk>,
    mut to: WriteHalf<'_>,
    rules: &watch::Sender<Rules>,
    direction: Direction,
) -> Result<(), EndReason> {
    let mut subscription = rules.subscribe();
    while let Some((passes_at, bytes)) = receiver.recv().await {
        tokio::time::sleep_until(passes_at).await;
        // A connection that became silent keeps its sockets open: it waits here
        // for the end that `pass` decides.
        let flow = match subscription.wait_for(|rules| rules.flow != Flow::Stalled).await {
            Ok(rules) => rules.flow,
            Err(_) => return Ok(()),
        };
        match (flow, bytes) {
            (Flow::Silent, Some(_)) => {}
            (Flow::Silent, None) => std::future::pending().await,
            (Flow::Passing | Flow::Stalled, Some(bytes)) => write(&mut to, bytes, rules, direction).await?,
            (Flow::Passing | Flow::Stalled, None) => return Ok(to.shutdown().await?),
        }
    }
    Ok(())
}

/// Writes bytes up to a cut, which ends the connection.
async fn write(
    to: &mut WriteHalf<'_>,
    mut bytes: Bytes,
    rules: &watch::Sender<Rules>,
    direction: Direction,
) -> Result<(), EndReason> {
    let allowed = match (direction, rules.borrow().answer_bytes_left) {
        (Direction::ToClient, Some(left)) => left,
        (Direction::ToClient, None) | (Direction::ToServer, _) => u64::MAX,
    };
    let allowed = usize::try_from(allowed).unwrap_or(usize::MAX);
    let is_cut = bytes.remaining() >= allowed;
    bytes.truncate(allowed);
    to.write_all(&bytes).await?;
    if is_cut {
        to.shutdown().await?;
        return Err(EndReason::Cut);
    }
    if direction == Direction::ToClient {
        rules.send_if_modified(|rules| {
            if let Some(left) = &mut rules.answer_bytes_left {
                *left = left.saturating_sub(bytes.len() as u64);
            }
            false
        });
    }
    Ok(())
}
