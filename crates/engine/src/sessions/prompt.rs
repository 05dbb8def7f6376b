//! What a harness adds to the system prompt of a session's agent.

use std::fmt::Write as _;

use keepsake_core::tool::{ProtocolOptions, protocol_text};
use keepsake_index::{Access, Attachment, Session};

/// Where an agent with a file system finds a store.
pub fn mount_path(attachment: &Attachment) -> String {
    format!("/mnt/memory/{}", attachment.slug)
}

/// The text: how to use memory, and each store with what is to be known of it.
pub fn system_prompt(session: &Session) -> String {
    let mut text = protocol_text(ProtocolOptions::default());
    if session.attachments.is_empty() {
        text.push_str("\n\nNo memory store is attached to this session at the moment.");
        return text;
    }
    text.push_str("\n\nThese memory stores are attached to this session, each of them a directory:");
    for attachment in &session.attachments {
        let access = match attachment.access {
            Access::ReadWrite => "to be read and written",
            Access::ReadOnly => "to be read alone: every change is refused",
        };
        // Writing to a text cannot fail.
        let _ = write!(
            text,
            "\n\n/memories/{} (in a file system: {})\n{}, {access}.",
            attachment.slug,
            mount_path(attachment),
            attachment.name,
        );
        if !attachment.description.is_empty() {
            let _ = write!(text, "\nWhat it is: {}", attachment.description);
        }
        if let Some(instructions) = attachment.instructions.as_deref().filter(|text| !text.is_empty()) {
            let _ = write!(text, "\nHow to use it: {instructions}");
        }
    }
    text
}
