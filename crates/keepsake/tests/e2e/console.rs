//! The web console, over plain HTTP: pages, forms, and what they do.

mod actions;
mod archives;
pub(crate) mod browser;
mod defences;
mod issuer;
mod live;
mod operator;
mod operator_browser;
mod pages;
mod sign_in;
