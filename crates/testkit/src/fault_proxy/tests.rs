//! Each fault, seen by a client through plain sockets.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;

/// Within which everything that must arrive arrives.
const DEADLINE: Duration = Duration::from_secs(10);
/// Within which nothing arrives where nothing must.
const QUIET: Duration = Duration::from_millis(200);

/// A server that sends back what it reads; its open connections are counted.
async fn echo_server() -> (String, watch::Receiver<usize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap().to_string();
    let open = watch::Sender::new(0);
    let count = open.subscribe();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let open = open.clone();
            open.send_modify(|open| *open += 1);
            tokio::spawn(async move {
                let mut buffer = [0; 1024];
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    if stream.write_all(&buffer[..length]).await.is_err() {
                        break;
                    }
                }
                open.send_modify(|open| *open -= 1);
            });
        }
    });
    (address, count)
}

async fn echo_proxy() -> (FaultProxy, watch::Receiver<usize>) {
    let (upstream, open) = echo_server().await;
    (FaultProxy::start(&upstream).await, open)
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Sends a text, which must come back.
async fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").await.unwrap();
    let mut answer = [0; 5];
    let read = timeout(DEADLINE, stream.read_exact(&mut answer)).await;
    read.expect("the echo arrives in time").unwrap();
    assert_eq!(&answer, b"hello");
}

/// Sends a text, to which nothing may come back: no bytes, no end, no error.
async fn assert_silent(stream: &mut TcpStream) {
    stream.write_all(b"hello").await.unwrap();
    let read = timeout(QUIET, stream.read(&mut [0; 5])).await;
    assert!(read.is_err(), "a silent connection answered {read:?}");
}

/// Reads the end of a connection that was closed with a RST.
async fn assert_reset(stream: &mut TcpStream) {
    let read = timeout(DEADLINE, stream.read(&mut [0; 5])).await;
    let error = read.expect("the reset arrives in time").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

#[tokio::test]
async fn proxy_forwards_bytes_and_closes() {
    let (proxy, mut open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;
    assert_eq!((proxy.accepted(), proxy.connections().len()), (1, 1));

    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 5]).await.unwrap(), 0);
    timeout(DEADLINE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
}

#[tokio::test]
async fn delay_applies_to_each_direction() {
    let (proxy, _open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;

    proxy.delay(Duration::from_millis(100));
    let started_at = Instant::now();
    assert_echoes(&mut stream).await;
    let elapsed = started_at.elapsed();
    assert!(elapsed >= Duration::from_millis(200), "{elapsed:?}");

    proxy.heal().await;
    assert_echoes(&mut stream).await;
}

#[tokio::test]
async fn reset_breaks_both_sides_and_new_connections_work() {
    let (proxy, mut open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;

    proxy.reset_connections();
    assert_reset(&mut stream).await;
    timeout(DEADLINE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn refusing_connections_keeps_open_ones() {
    let (proxy, _open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;

    proxy.refuse_connections().await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_echoes(&mut stream).await;

    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn answer_is_cut_in_its_middle() {
    let (proxy, _open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;

    proxy.cut_after(3);
    stream.write_all(b"hello").await.unwrap();
    let mut answer = Vec::new();
    timeout(DEADLINE, stream.read_to_end(&mut answer)).await.unwrap().unwrap();
    assert_eq!(answer, b"hel");

    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn stalled_bytes_arrive_later() {
    let (proxy, _open) = echo_proxy().await;
    let mut stream = connect(&proxy).await;
    proxy.stall();
    assert_silent(&mut stream).await;

    proxy.heal().await;
    let mut answer = [0; 5];
    timeout(DEADLINE, stream.read_exact(&mut answer)).await.unwrap().unwrap();
    assert_eq!(&answer, b"hello");
}

#[tokio::test]
async fn silent_connection_stays_silent_and_new_ones_work() {
    let (proxy, mut open) = echo_proxy().await;
    let mut silent = connect(&proxy).await;
    assert_echoes(&mut silent).await;

    proxy.silence_connections();
    assert_silent(&mut silent).await;
    assert_echoes(&mut connect(&proxy).await).await;
    let is_seen_by_server = timeout(QUIET, open.wait_for(|open| *open == 0)).await.is_ok();
    assert!(!is_seen_by_server, "a silent connection was closed on the server");

    proxy.heal().await;
    assert_silent(&mut silent).await;
    timeout(DEADLINE, open.wait_for(|open| *open == 0)).await.unwrap().unwrap();
    let connection = proxy.connections().remove(0);
    drop(silent);
    timeout(DEADLINE, connection.rules.closed()).await.unwrap();
    assert!(!connection.is_open());
}

#[tokio::test]
async fn close_on_a_silenced_connection_does_not_reach_the_server() {
    let (proxy, mut open) = echo_proxy().await;
    let mut silent = connect(&proxy).await;
    assert_echoes(&mut silent).await;
    proxy.silence_connections();
    drop(silent);
    let is_seen_by_server = timeout(QUIET, open.wait_for(|open| *open == 0)).await.is_ok();
    assert!(!is_seen_by_server);
}

#[tokio::test]
async fn new_connections_are_silent_too_until_healed() {
    let (proxy, _open) = echo_proxy().await;
    proxy.silence_all();
    assert_silent(&mut connect(&proxy).await).await;
    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn one_connection_is_faulted_and_the_other_works() {
    let (proxy, _open) = echo_proxy().await;
    let mut first = connect(&proxy).await;
    assert_echoes(&mut first).await;
    let mut second = connect(&proxy).await;
    assert_echoes(&mut second).await;

    let connections = proxy.connections();
    connections[0].silence();
    assert_silent(&mut first).await;
    assert_echoes(&mut second).await;
    connections[1].reset();
    assert_reset(&mut second).await;
    connections[0].reset();
    assert_reset(&mut first).await;
}

#[tokio::test]
async fn upstream_that_is_down_resets_the_client() {
    let proxy = FaultProxy::start(&format!("127.0.0.1:{}", free_port())).await;
    assert_reset(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn new_connections_go_to_the_new_upstream() {
    let (proxy, first) = echo_proxy().await;
    let mut old = connect(&proxy).await;
    assert_echoes(&mut old).await;
    let (upstream, second) = echo_server().await;
    proxy.set_upstream(&upstream);
    let mut new = connect(&proxy).await;
    assert_echoes(&mut new).await;
    assert_echoes(&mut old).await;
    assert_eq!((*first.borrow(), *second.borrow()), (1, 1));
}

#[tokio::test]
async fn proxied_url_has_the_address_of_the_proxy() {
    for (url, before, after) in [
        ("postgres://u:p@127.0.0.1:5432/db?a=b", "postgres://u:p@", "/db?a=b"),
        ("postgres://localhost/db", "postgres://", "/db"),
        ("http://127.0.0.1:9000", "http://", ""),
    ] {
        let (proxy, through) = FaultProxy::before_url(url).await;
        assert_eq!(through, format!("{before}{}{after}", proxy.address()));
    }
}
