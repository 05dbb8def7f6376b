//! The safe pieces that pages are made of.

pub(crate) mod chart;
mod code;
pub(crate) mod diff;
pub(crate) mod line_ends;
pub(crate) mod lines;
pub(crate) mod markdown;
pub(crate) mod markup;
pub(crate) mod timeline;
