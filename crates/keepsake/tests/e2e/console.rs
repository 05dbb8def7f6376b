//! The web console, over plain HTTP: pages, forms, and what they do.

mod actions;
mod browser;
mod defences;
mod operator;
mod pages;
mod sign_in;
