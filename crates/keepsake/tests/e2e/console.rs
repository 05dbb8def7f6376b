//! The web console, over plain HTTP. `tests/browser` uses it as people do; here is what it
//! refuses, and what a browser does not show.

mod actions;
mod archives;
pub(crate) mod browser;
mod defences;
mod history;
mod issuer;
mod live;
mod pages;
mod sign_in;
