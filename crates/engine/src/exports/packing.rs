//! The bytes of an archive, which are packed in steps and sent in chunks.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use keepsake_archive::packed::Writer;
use keepsake_core::TenantId;
use tokio::sync::mpsc;

use crate::fair::{FairSlot, FairSlots};
use crate::work::{RequestShares, held};
use crate::{Computations, EngineError};

/// Packed bytes that are sent at once.
const CHUNK_BYTES: usize = 64 << 10;
/// After this time, bytes are sent that fill no chunk, so that the connection is not taken for dead.
const MAX_SILENCE: Duration = Duration::from_secs(10);

/// The next bytes of an archive, its end, or why it is broken off.
pub(super) type ArchiveChunk = Result<Option<Bytes>, EngineError>;

/// Why an export ends before its archive is complete.
pub(super) enum ExportAbort {
    /// The client went away.
    ByReader,
    Failed(EngineError),
}

impl From<EngineError> for ExportAbort {
    fn from(error: EngineError) -> Self {
        Self::Failed(error)
    }
}

pub(super) fn unpackable(_: io::Error) -> EngineError {
    EngineError::Internal("a part of an archive cannot be packed")
}

pub(super) struct ArchivePacker {
    computations: Computations,
    slots: Arc<FairSlots>,
    tenant_id: TenantId,
    /// `None` while a step runs.
    writer: Option<Writer<Vec<u8>>>,
    /// When bytes were last sent, or there were none to send.
    sent_at: Instant,
    sender: mpsc::Sender<ArchiveChunk>,
    held: Option<Arc<RequestShares>>,
}

impl ArchivePacker {
    pub(super) fn new(
        computations: Computations,
        slots: Arc<FairSlots>,
        tenant_id: TenantId,
        writer: Writer<Vec<u8>>,
        sender: mpsc::Sender<ArchiveChunk>,
    ) -> Self {
        let writer = Some(writer);
        Self { computations, slots, tenant_id, writer, sent_at: Instant::now(), sender, held: held() }
    }

    /// A slot for one step: reading something, and packing it.
    pub(super) async fn slot(&self) -> Result<FairSlot, EngineError> {
        self.slots.take(self.tenant_id).await
    }

    /// Counts bytes of memory that are used until the export ends.
    pub(super) fn charge(&self, bytes: usize) -> Result<(), EngineError> {
        self.held.as_ref().map_or(Ok(()), |held| held.charge(bytes))
    }

    /// Writes a part of the archive.
    pub(super) async fn pack<T: Send + 'static>(
        &mut self,
        step: impl FnOnce(&mut Writer<Vec<u8>>) -> io::Result<T> + Send + 'static,
    ) -> Result<T, EngineError> {
        let mut writer = self.take_writer()?;
        let run = move || step(&mut writer).map(|done| (writer, done));
        let packed = self.compute(run).await?;
        let (writer, done) = packed.map_err(unpackable)?;
        self.writer = Some(writer);
        Ok(done)
    }

    /// Runs a computation. It keeps the shares of the request to its end, also if the client goes
    /// away meanwhile.
    pub(super) async fn compute<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> Result<T, EngineError> {
        let held = self.held.clone();
        let run = move || {
            let done = work();
            drop(held);
            done
        };
        self.computations.run(self.tenant_id, run).await
    }

    fn take_writer(&mut self) -> Result<Writer<Vec<u8>>, EngineError> {
        self.writer.take().ok_or(EngineError::Internal("a step of an archive did not end"))
    }

    /// Sends the packed bytes, if they fill a chunk or nothing was sent for long.
    pub(super) async fn flush(&mut self) -> Result<(), ExportAbort> {
        let is_late = self.sent_at.elapsed() >= MAX_SILENCE;
        if is_late {
            self.pack(Writer::flush).await?;
        }
        let is_due = |packed: &&mut Vec<u8>| packed.len() >= CHUNK_BYTES || (is_late && !packed.is_empty());
        let packed = self.writer.as_mut().map(Writer::get_mut);
        match packed.filter(is_due).map(std::mem::take) {
            Some(chunk) => self.send(chunk).await?,
            None if is_late => {}
            None => return Ok(()),
        }
        self.sent_at = Instant::now();
        Ok(())
    }

    /// Ends the archive, and sends the rest of its bytes.
    pub(super) async fn finish(mut self) -> Result<(), ExportAbort> {
        let writer = self.take_writer()?;
        let rest = self.compute(move || writer.finish()).await?;
        self.send(rest.map_err(unpackable)?).await
    }

    async fn send(&self, chunk: Vec<u8>) -> Result<(), ExportAbort> {
        self.sender.send(Ok(Some(chunk.into()))).await.map_err(|_| ExportAbort::ByReader)
    }
}
