//! A TCP proxy that injects network faults between a client and a server.

mod connection;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::keepsake_server::free_port;

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
    shared: Arc<Shared>,
    accept_task: JoinHandle<()>,
}

/// One connection that goes through a [`FaultProxy`].
#[derive(Debug, Clone)]
pub struct ProxiedConnection {
    rules: watch::Sender<Rules>,
}

/// What happens to the bytes of one connection.
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

#[derive(Debug)]
struct Shared {
    upstream: Mutex<String>,
    state: Mutex<State>,
    /// Whether the port should be open.
    wants_listener: watch::Sender<bool>,
    /// Whether the port is open.
    has_listener: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// For connections that are accepted later.
    rules: Rules,
    connections: BTreeMap<u64, watch::Sender<Rules>>,
    accepted: u64,
}

impl FaultProxy {
    /// Starts a proxy before `upstream`, which is `host:port`.
    ///
    /// # Panics
    /// When no port can be opened.
    pub async fn start(upstream: &str) -> Self {
        let address = SocketAddr::from((Ipv4Addr::LOCALHOST, free_port()));
        let listener = TcpListener::bind(address).await.expect("the proxy's port cannot be opened");
        let shared = Arc::new(Shared {
            upstream: Mutex::new(upstream.to_owned()),
            state: Mutex::default(),
            wants_listener: watch::Sender::new(true),
            has_listener: watch::Sender::new(true),
        });
        let accept_task = tokio::spawn(accept_connections(address, listener, Arc::clone(&shared)));
        Self { address, shared, accept_task }
    }

    /// Starts a proxy before the server of `url`; the second value is the same
    /// URL with the proxy's address.
    ///
    /// # Panics
    /// When the URL names no port (Postgres's excepted), or none can be opened.
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

    /// A URL of the proxy's server, with the proxy's address.
    #[must_use]
    pub fn url(&self, url: &str) -> String {
        let (authority, host_at) = authority_of(url);
        let through = format!("{}{}", &authority[..host_at], self.address);
        url.replacen(authority, &through, 1)
    }

    /// Where clients connect to.
    #[must_use]
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The connections that are open now, oldest first.
    #[must_use]
    pub fn connections(&self) -> Vec<ProxiedConnection> {
        let state = self.shared.state();
        let rules = state.connections.values().cloned();
        rules.map(|rules| ProxiedConnection { rules }).collect()
    }

    /// How many connections were accepted since the start.
    #[must_use]
    pub fn accepted(&self) -> u64 {
        self.shared.state().accepted
    }

    /// Connects new connections to another server, as after a failover.
    pub fn set_upstream(&self, upstream: &str) {
        upstream.clone_into(&mut self.shared.upstream.lock().unwrap_or_else(PoisonError::into_inner));
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
        self.set_listening(false).await;
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

    /// Swallows all bytes of open and of new connections.
    pub fn silence_all(&self) {
        self.change_all(|rules| rules.flow = Flow::Silent);
    }

    /// Ends all faults.
    ///
    /// Silent connections stay silent towards their clients, since their bytes
    /// are lost; the server sees a RST, as from its own keepalive.
    pub async fn heal(&self) {
        {
            let mut state = self.shared.state();
            state.rules = Rules::default();
            for rules in state.connections.values() {
                rules.send_modify(|rules| *rules = rules.healed());
            }
        }
        self.set_listening(true).await;
    }

    fn change_all(&self, change: impl Fn(&mut Rules)) {
        let mut state = self.shared.state();
        change(&mut state.rules);
        for rules in state.connections.values() {
            rules.send_modify(&change);
        }
    }

    async fn set_listening(&self, is_open: bool) {
        self.shared.wants_listener.send_replace(is_open);
        let mut has_listener = self.shared.has_listener.subscribe();
        // The sender lives in `shared`.
        let _ = has_listener.wait_for(|has_listener| *has_listener == is_open).await;
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        self.accept_task.abort();
        self.reset_connections();
    }
}

impl ProxiedConnection {
    /// Closes it with a RST on both sides.
    pub fn reset(&self) {
        self.rules.send_modify(|rules| rules.is_reset = true);
    }

    /// Swallows its bytes from now on, without FIN or RST.
    pub fn silence(&self) {
        self.rules.send_modify(|rules| rules.flow = Flow::Silent);
    }

    /// Whether it is still open on the client's side.
    #[must_use]
    pub fn is_open(&self) -> bool {
        self.rules.receiver_count() > 0
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes a new connection into the table; its rules, and its number.
    fn register(&self) -> (u64, watch::Sender<Rules>) {
        let mut state = self.state();
        let number = state.accepted;
        state.accepted += 1;
        let rules = watch::Sender::new(state.rules);
        state.connections.insert(number, rules.clone());
        (number, rules)
    }
}

/// Accepts while the port should be open, and closes it in between.
async fn accept_connections(address: SocketAddr, listener: TcpListener, shared: Arc<Shared>) {
    let mut wants_listener = shared.wants_listener.subscribe();
    let mut listener = Some(listener);
    loop {
        let is_wanted = *wants_listener.borrow_and_update();
        if !is_wanted {
            listener = None;
        } else if listener.is_none() {
            listener =
                Some(TcpListener::bind(address).await.expect("the proxy's port cannot be opened again"));
        }
        shared.has_listener.send_replace(listener.is_some());
        let Some(listener) = &listener else {
            let _ = wants_listener.changed().await;
            continue;
        };
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    spawn_connection(client, Arc::clone(&shared));
                }
            }
            _ = wants_listener.changed() => {}
        }
    }
}

fn spawn_connection(client: TcpStream, shared: Arc<Shared>) {
    let (number, rules) = shared.register();
    // Subscribed before the task runs, so that `is_open` is true at once.
    let subscription = rules.subscribe();
    let upstream = shared.upstream.lock().unwrap_or_else(PoisonError::into_inner).clone();
    tokio::spawn(async move {
        // An error is the end of the connection, which its client sees.
        let _: io::Result<()> = connection::pass(client, &upstream, &rules, subscription).await;
        shared.state().connections.remove(&number);
    });
}

/// The part of a URL between `//` and the path, and where the host begins in it.
fn authority_of(url: &str) -> (&str, usize) {
    let start = url.find("://").map_or(0, |at| at + "://".len());
    let rest = &url[start..];
    let authority = &rest[..rest.find(['/', '?']).unwrap_or(rest.len())];
    (authority, authority.rfind('@').map_or(0, |at| at + 1))
}
