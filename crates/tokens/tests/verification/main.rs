//! Verification of tokens, with real keys.

#![expect(clippy::unwrap_used, reason = "a test that meets the unexpected ends there")]

mod attacks;
mod claims;
mod fixture;
mod headers;
mod jwks;
mod ring;
mod vault;
