//! Hosts of URLs.

use std::net::IpAddr;

/// Whether a URL's host is this machine: `localhost` or a loopback address.
pub fn is_this_machine(host: &str) -> bool {
    let address = host.trim_start_matches('[').trim_end_matches(']');
    host == "localhost" || address.parse().is_ok_and(|address: IpAddr| address.is_loopback())
}
