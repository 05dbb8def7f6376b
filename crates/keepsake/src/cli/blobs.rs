//! Arguments of `keepsake blobs`.

use std::num::NonZeroU16;

use clap::{Args, Subcommand};
use keepsake_blobs::BlobUrl;
use keepsake_config::SourceArgs;

use super::OutputArgs;

#[derive(Debug, Subcommand)]
pub(crate) enum BlobCommand {
    /// Moves all content between the index and an object store; run it again to continue
    Move(MoveBlobsArgs),
}

#[derive(Debug, Args)]
#[command(after_help = "Examples:
  keepsake blobs move --config keepsake.toml --from index: --to s3://agent-memory --keep
  keepsake blobs move --config keepsake.toml --from s3://agent-memory --to index:")]
pub(crate) struct MoveBlobsArgs {
    #[command(flatten)]
    pub(crate) sources: SourceArgs,
    #[arg(
        long,
        value_name = "URL",
        help = "The current storage of content: index: or s3://bucket/prefix [default: blobs.url]"
    )]
    pub(crate) from: Option<BlobUrl>,
    #[arg(long, value_name = "URL", help = "The new storage of content: index: or s3://bucket/prefix")]
    pub(crate) to: BlobUrl,
    /// Keeps the originals; only then may servers run meanwhile
    #[arg(long)]
    pub(crate) keep: bool,
    /// Number of contents copied at a time
    #[arg(long, value_name = "N", default_value = "16")]
    pub(crate) concurrency: NonZeroU16,
    #[command(flatten)]
    pub(crate) output: OutputArgs,
}
