//! The HTML parts of pages, with all text escaped: markup, Markdown, differences, charts.

pub(crate) mod chart;
mod code;
pub(crate) mod diff;
pub(crate) mod line_ends;
pub(crate) mod lines;
pub(crate) mod markdown;
pub(crate) mod markup;
pub(crate) mod timeline;
