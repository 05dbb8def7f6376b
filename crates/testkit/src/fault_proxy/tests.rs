//! Each fault, seen by a client through plain sockets.

use std::io::ErrorKind;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::time::{Instant, timeout};

use super::*;

/// Within which nothing arrives where nothing must.
const QUIET: Duration = Duration::from_millis(200);

/// What must happen in time.
async fn soon<T>(happens: impl Future<Output = T>) -> T {
    timeout(Duration::from_secs(10), happens).await.expect("it happens in time")
}

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
                let (mut from, mut to) = stream.split();
                let _ = tokio::io::copy(&mut from, &mut to).await;
                open.send_modify(|open| *open -= 1);
            });
        }
    });
    (address, count)
}

/// A proxy before such a server, with one connection.
async fn connected() -> (FaultProxy, watch::Receiver<usize>, TcpStream) {
    let (upstream, open) = echo_server().await;
    let proxy = FaultProxy::start(&upstream).await;
    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;
    (proxy, open, stream)
}

async fn connect(proxy: &FaultProxy) -> TcpStream {
    TcpStream::connect(proxy.address()).await.unwrap()
}

/// Sends a text, which must come back.
async fn assert_echoes(stream: &mut TcpStream) {
    stream.write_all(b"hello").await.unwrap();
    assert_hello(stream).await;
}

async fn assert_hello(stream: &mut TcpStream) {
    let mut answer = [0; 5];
    soon(stream.read_exact(&mut answer)).await.unwrap();
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
    let error = soon(stream.read(&mut [0; 5])).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
}

async fn assert_all_closed(open: &mut watch::Receiver<usize>) {
    soon(open.wait_for(|open| *open == 0)).await.unwrap();
}

async fn assert_left_open(open: &mut watch::Receiver<usize>) {
    let is_closed = timeout(QUIET, open.wait_for(|open| *open == 0)).await.is_ok();
    assert!(!is_closed, "a silent connection was closed on the server");
}

#[tokio::test]
async fn bytes_closes_and_resets_are_passed_on() {
    let (proxy, mut open, mut stream) = connected().await;
    assert_eq!((proxy.accepted(), proxy.connections().len()), (1, 1));
    stream.shutdown().await.unwrap();
    assert_eq!(stream.read(&mut [0; 5]).await.unwrap(), 0);
    assert_all_closed(&mut open).await;

    let mut stream = connect(&proxy).await;
    assert_echoes(&mut stream).await;
    proxy.reset_connections();
    assert_reset(&mut stream).await;
    assert_all_closed(&mut open).await;
    assert_echoes(&mut connect(&proxy).await).await;

    let before_nothing = FaultProxy::start(&format!("127.0.0.1:{}", free_port())).await;
    assert_reset(&mut connect(&before_nothing).await).await;
}

#[tokio::test]
async fn delay_cut_and_stall_last_until_healed() {
    let (proxy, _open, mut stream) = connected().await;
    proxy.delay(Duration::from_millis(100));
    let started_at = Instant::now();
    assert_echoes(&mut stream).await;
    let elapsed = started_at.elapsed();
    assert!(elapsed >= Duration::from_millis(200), "each direction: {elapsed:?}");

    proxy.heal().await;
    proxy.stall();
    assert_silent(&mut stream).await;
    proxy.heal().await;
    assert_hello(&mut stream).await;

    proxy.cut_after(3);
    stream.write_all(b"hello").await.unwrap();
    let mut answer = Vec::new();
    soon(stream.read_to_end(&mut answer)).await.unwrap();
    assert_eq!(answer, b"hel");
    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn refusing_connections_keeps_open_ones() {
    let (proxy, _open, mut stream) = connected().await;
    proxy.refuse_connections().await;
    let refused = TcpStream::connect(proxy.address()).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    assert_echoes(&mut stream).await;
    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn silent_connection_stays_silent_and_new_ones_work() {
    let (proxy, mut open, mut silent) = connected().await;
    proxy.silence_connections();
    assert_silent(&mut silent).await;
    assert_echoes(&mut connect(&proxy).await).await;
    assert_left_open(&mut open).await;

    proxy.heal().await;
    assert_silent(&mut silent).await;
    assert_all_closed(&mut open).await;
    let connection = proxy.connections().remove(0);
    drop(silent);
    soon(connection.rules.closed()).await;

    proxy.silence_all();
    assert_silent(&mut connect(&proxy).await).await;
    proxy.heal().await;
    assert_echoes(&mut connect(&proxy).await).await;
}

#[tokio::test]
async fn close_on_a_silenced_connection_does_not_reach_the_server() {
    let (proxy, mut open, silent) = connected().await;
    proxy.silence_connections();
    drop(silent);
    assert_left_open(&mut open).await;
}

#[tokio::test]
async fn one_connection_is_faulted_and_the_other_works() {
    let (proxy, _open, mut first) = connected().await;
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
