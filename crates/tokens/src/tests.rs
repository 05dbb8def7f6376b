//! Verification of tokens, with real keys.

mod attacks;
mod claims;
mod fixture;
mod headers;
mod jwks;
mod ring;
mod vault;
