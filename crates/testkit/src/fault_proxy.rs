//! A TCP proxy that injects network faults between a client and a server.

mod connection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::keepsake_server::free_port;
use crate::locked;

/// Passes connections on to one server, and injects faults into them.
///
/// Methods of this type apply to all connections; [`FaultProxy::connections`]
/// returns handles for one connection. Faults that can end ([`Self::delay`],
/// [`Self::refuse_connections`], [`Self::stall`], [`Self::cut_after`],
/// [`Self::silence_all`]) last until [`Self::heal`].
///
/// Dropping the value closes every connection and the port.
#[derive(Debug)]
pub struct FaultProxy {
    address: SocketAddr,
    state: Arc<Mutex<State>>,
    /// Empty while connections are refused.
    accepting: tokio::sync::Mutex<JoinSet<()>>,
}

#[derive(Debug, Clone)]
pub struct ProxiedConnection {
    rules: watch::Sender<Rules>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Rules {
    delay: Duration,
    flow: Flow,
    /// Bytes of answers that still pass before the connection is closed.
    answer_bytes_left: Option<u64>,
    /// Both sockets are closed with a RST.
    is_reset: bool,
    /// The server's side of a silent connection is closed with a RST.
    is_forgotten: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Flow {
    #[default]
    Passing,
    /// Bytes wait in the proxy.
    Stalled,
    /// Bytes are thrown away.
    Silent,
}

impl Rules {
    fn healed(self) -> Self {
        let is_silent = self.flow == Flow::Silent;
        Self {
            is_forgotten: is_silent,
            flow: if is_silent { Flow::Silent } else { Flow::Passing },
            is_reset: self.is_reset,
            ..Self::default()
        }
    }
}

#[derive(Debug, Default)]
struct State {
    upstream: String,
    /// For connections that are accepted later.
    rules: Rules,
    connections: BTreeMap<u64, watch::Sender<Rules>>,
    accepted: u64,
}

impl FaultProxy {
    /// Starts a proxy before `upstream`, which is `host:port`.
    pub async fn start(upstream: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let state = State { upstream: upstream.to_owned(), ..State::default() };
        let proxy = Self { address, state: Arc::new(Mutex::new(state)), accepting: <_>::default() };
        proxy.accept_connections().await;
        proxy
    }

    /// Starts a proxy before the server of `url`; the second value is the same
    /// URL with the proxy's address.
    pub async fn before_url(url: &str) -> (Self, String) {
        let (authority, host_at) = authority_of(url);
        let host = &authority[host_at..];
        let upstream = match (host.contains(':'), url.starts_with("postgres")) {
            (true, _) => host.to_owned(),
            (false, true) => format!("{host}:5432"),
            (false, false) => panic!("a proxy needs a URL with a port, not {url}"),
        };
        let proxy = Self::start(&upstream).await;
        let through = proxy.url(url);
        (proxy, through)
    }

    pub fn url(&self, url: &str) -> String {
        let (authority, host_at) = authority_of(url);
        let through = format!("{}{}", &authority[..host_at], self.address);
        url.replacen(authority, &through, 1)
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections that are open now, oldest first.
    pub fn connections(&self) -> Vec<ProxiedConnection> {
        let state = locked(&self.state);
        state.connections.values().cloned().map(|rules| ProxiedConnection { rules }).collect()
    }

    pub fn accepted(&self) -> u64 {
        locked(&self.state).accepted
    }

    /// Connects new connections to another server, as after a failover.
    pub fn set_upstream(&self, upstream: &str) {
        upstream.clone_into(&mut locked(&self.state).upstream);
    }

    /// Delays all bytes, in each direction, by `delay`; bandwidth is not reduced.
    pub fn delay(&self, delay: Duration) {
        self.change_all(|rules| rules.delay = delay);
    }

    /// Closes the open connections with a RST on both sides.
    pub fn reset_connections(&self) {
        for connection in self.connections() {
            connection.reset();
        }
    }

    /// Closes the port: a new connection is refused, an open one works.
    pub async fn refuse_connections(&self) {
        self.accepting.lock().await.shutdown().await;
    }

    /// Closes each connection after `bytes` more bytes of answers, in the middle
    /// of a body if that is where they end. New connections count from their
    /// start.
    pub fn cut_after(&self, bytes: u64) {
        self.change_all(|rules| rules.answer_bytes_left = Some(bytes));
    }

    /// Holds all bytes back; they arrive after [`Self::heal`].
    pub fn stall(&self) {
        self.change_all(|rules| rules.flow = Flow::Stalled);
    }

    /// Swallows all bytes of the open connections, without FIN or RST, as after
    /// the loss of a node or of a NAT table. New connections work.
    pub fn silence_connections(&self) {
        for connection in self.connections() {
            connection.silence();
        }
    }

    pub fn silence_all(&self) {
        self.change_all(|rules| rules.flow = Flow::Silent);
    }

    /// Ends all faults.
    ///
    /// Silent connections stay silent towards their clients, since their bytes
    /// are lost; the server sees a RST, as from its own keepalive.
    pub async fn heal(&self) {
        {
            let mut state = locked(&self.state);
            state.rules = Rules::default();
            for rules in state.connections.values() {
                rules.send_modify(|rules| *rules = rules.healed());
            }
        }
        self.accept_connections().await;
    }

    fn change_all(&self, change: impl Fn(&mut Rules)) {
        let mut state = locked(&self.state);
        change(&mut state.rules);
        for rules in state.connections.values() {
            rules.send_modify(&change);
        }
    }

    /// Opens the port, unless it is open.
    async fn accept_connections(&self) {
        let mut accepting = self.accepting.lock().await;
        if accepting.is_empty() {
            let listener = TcpListener::bind(self.address).await.expect("the proxy's port cannot be opened");
            let state = Arc::clone(&self.state);
            accepting.spawn(async move {
                loop {
                    if let Ok((client, _)) = listener.accept().await {
                        spawn_connection(client, Arc::clone(&state));
                    }
                }
            });
        }
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accepting.get_mut().abort_all();
        self.reset_connections();
    }
}

impl ProxiedConnection {
    pub fn reset(&self) {
        self.rules.send_modify(|rules| rules.is_reset = true);
    }

    /// Swallows its bytes from now on, without FIN or RST.
    pub fn silence(&self) {
        self.rules.send_modify(|rules| rules.flow = Flow::Silent);
    }
}

fn spawn_connection(client: TcpStream, state: Arc<Mutex<State>>) {
    let (number, rules, upstream) = {
        let mut state = locked(&state);
        let (number, rules) = (state.accepted, watch::Sender::new(state.rules));
        state.accepted += 1;
        state.connections.insert(number, rules.clone());
        (number, rules, state.upstream.clone())
    };
    let subscription = rules.subscribe();
    tokio::spawn(async move {
        // An error is the end of the connection, which its client sees.
        let _: io::Result<()> = connection::pass(client, &upstream, &rules, subscription).await;
        locked(&state).connections.remove(&number);
    });
}

/// The part of a URL between `//` and the path, and where the host begins in it.
fn authority_of(url: &str) -> (&str, usize) {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let rest = &url[start..];
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    (authority, authority.rfind('@').map_or(0, |at| at + 1))
}
