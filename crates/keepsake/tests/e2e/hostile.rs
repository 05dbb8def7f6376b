//! Requests as no client makes them: the server refuses them and lives on.

use std::time::{Duration, Instant};

use reqwest::Method;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::support::client::{send, tool_calls};
use crate::support::deployment::ServerConfig;
use crate::support::{Client, Deployment, Pair, Server, Tenant};

/// No answer but a closed connection.
const CLOSED: u16 = 0;
/// Longer than any bound of the server's that is met here.
const PATIENCE: Duration = Duration::from_secs(30);

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_harm_nothing() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let mut server = deployment.start().await;
    tokio::join!(
        heads(&server),
        frames(&server, &tenant),
        slow_clients(&server, &tenant),
        bodies(&server, &tenant),
    );
    let store = format!("/v1/memory_stores/{}", tenant.store_id);
    assert_eq!(server.client(&tenant).get(&store).await.status, 200);
    server.end().await;
    let log = server.output();
    assert!(!log.contains("panicked"), "{log}");
}

/// Sends bytes and returns the status of the first answer, and everything received.
async fn exchange(server: &Server, bytes: &[u8]) -> (u16, String) {
    let exchanged = tokio::time::timeout(PATIENCE, async {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        // The server may have seen enough before the end.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    let shown = String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned();
    let answer = exchanged.await.unwrap_or_else(|_| panic!("left waiting: {shown}"));
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(CLOSED), answer)
}

async fn answered_one_of(server: &Server, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let (status, answer) = exchange(server, bytes.as_ref()).await;
    let shown = String::from_utf8_lossy(&bytes.as_ref()[..bytes.as_ref().len().min(80)]).into_owned();
    assert!(statuses.contains(&status), "{shown:?} was answered {status}: {answer}");
}

/// Malformed request heads.
async fn heads(server: &Server) {
    const END: &str = "Host: x\r\nConnection: close\r\n\r\n";
    let large = |bytes: usize| "x".repeat(bytes);
    for (head, statuses) in [
        ("\r\n\r\n\0\0\0\0\r\n\r\n".to_owned(), [400, CLOSED]),
        ("GET\r\n\r\n".to_owned(), [400, CLOSED]),
        ("GET  HTTP/1.1\r\n\r\n".to_owned(), [400, CLOSED]),
        ("GET / HTTP/9.9\r\n\r\n".to_owned(), [400, CLOSED]),
        ("GET / \r\n\r\n".to_owned(), [400, CLOSED]),
        ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(), [400, CLOSED]),
        ("\u{16}\u{3}\u{1}\u{2}\r\n\r\n".to_owned(), [400, CLOSED]),
        (format!("GET /\0 HTTP/1.1\r\n{END}"), [400, CLOSED]),
        (format!("GET /a b HTTP/1.1\r\n{END}"), [400, CLOSED]),
        (format!("GE\u{7f}T / HTTP/1.1\r\n{END}"), [400, CLOSED]),
        (format!("GET / HTTP/1.1\r\nA: \0\r\n{END}"), [400, CLOSED]),
        (format!("GET / HTTP/1.1\r\n: a\r\n{END}"), [400, CLOSED]),
        (format!("GET / HTTP/1.1\r\nA : b\r\n{END}"), [400, CLOSED]),
        (format!("GET / HTTP/1.1\r\nA: b\r\n folded\r\n{END}"), [400, CLOSED]),
        (format!("GET /nowhere HTTP/1.1\r\n{END}"), [404, 404]),
        (format!("TRACE /livez HTTP/1.1\r\n{END}"), [405, 405]),
        (format!("CONNECT x:443 HTTP/1.1\r\n{END}"), [404, 405]),
        (format!("OPTIONS * HTTP/1.1\r\n{END}"), [404, 405]),
        (format!("BREW /livez HTTP/1.1\r\n{END}"), [405, 405]),
        (format!("GET http://other/livez HTTP/1.1\r\n{END}"), [200, 200]),
        (format!("GET http://[::1/livez HTTP/1.1\r\n{END}"), [400, CLOSED]),
        (format!("GET /livez?{} HTTP/1.1\r\n{END}", large(8 << 10)), [414, 414]),
        (format!("GET /{} HTTP/1.1\r\n{END}", large(100_000)), [414, 431]),
        (format!("GET /livez HTTP/1.1\r\nA: {}\r\n{END}", large(17 << 10)), [431, 431]),
        (format!("GET /livez HTTP/1.1\r\nA: {}\r\n{END}", large(1 << 20)), [431, CLOSED]),
        (format!("GET /livez HTTP/1.1\r\n{}{END}", "A: b\r\n".repeat(10_000)), [431, CLOSED]),
    ] {
        answered_one_of(server, head, &statuses).await;
    }
    for path in [
        "/v1/memory_stores/%ff",
        "/v1/memory_stores/%00",
        "/v1/memory_stores/%",
        "/v1/memory_stores/%zz/memories",
        "/v1/%2e%2e/admin",
        "/v1/../admin/v1/tenants",
        "/v1//memory_stores",
        "//v1/memory_stores",
        "/v1/memory_stores/..%2f..%2f/memories",
        "/v1/memory_stores?limit=%ff&page=%00",
    ] {
        answered_one_of(server, format!("GET {path} HTTP/1.1\r\n{END}"), &[400, 401, 404]).await;
    }
    let not_utf8 = b"GET /v1/memory_stores/\xff\xfe HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n";
    answered_one_of(server, not_utf8, &[400, 401, 404]).await;
    let header =
        b"GET /v1/memory_stores HTTP/1.1\r\nHost: x\r\nx-api-key: \xff\xfe\r\nConnection: close\r\n\r\n";
    answered_one_of(server, header, &[401]).await;
    // Both of two that are pipelined, in order.
    let (_, answer) = exchange(
        server,
        format!("GET /livez HTTP/1.1\r\nHost: x\r\n\r\nGET /nowhere HTTP/1.1\r\n{END}").as_bytes(),
    )
    .await;
    let (first, second) = (answer.find(" 200 OK"), answer.find(" 404 Not Found"));
    assert!(first.is_some() && first < second, "{answer}");
}

/// Bodies whose length is a lie or a riddle.
async fn frames(server: &Server, tenant: &Tenant) {
    let key = &tenant.key;
    let post = |headers: &str, body: &str| {
        format!(
            "POST /v1/memory_stores HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: {key}\r\n\
             content-type: application/json\r\n{headers}\r\n\r\n{body}"
        )
    };
    let huge = "9".repeat(30);
    for (headers, body, statuses) in [
        ("Content-Length: 1000000000000", "{", [413, 413]),
        (&*format!("Content-Length: {huge}"), "{}", [400, CLOSED]),
        ("Content-Length: -1", "{}", [400, CLOSED]),
        ("Content-Length: +2", "{}", [400, CLOSED]),
        ("Content-Length: 2\r\nContent-Length: 3", "{}", [400, CLOSED]),
        ("Content-Length: 2, 3", "{}", [400, CLOSED]),
        ("Transfer-Encoding: gzip", "{}", [400, CLOSED]),
        ("Transfer-Encoding: chunked, gzip", "{}", [400, CLOSED]),
        ("Transfer-Encoding: xchunked", "{}", [400, CLOSED]),
        // The framing that counts is the chunked one.
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n", [400, CLOSED]),
        ("Transfer-Encoding: chunked", "2;x=\"y\r\n{}\r\n0\r\n\r\n", [400, CLOSED]),
        ("Transfer-Encoding: chunked", "ffffffffffffffffffff\r\n{}\r\n", [400, CLOSED]),
        ("Transfer-Encoding: chunked", "-2\r\n{}\r\n0\r\n\r\n", [400, CLOSED]),
        ("Transfer-Encoding: chunked", "2\r\n{}0\r\n\r\n", [400, CLOSED]),
    ] {
        answered_one_of(server, post(headers, body), &statuses).await;
    }
    let extended = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1 << 20));
    answered_one_of(server, post("Transfer-Encoding: chunked", &extended), &[400, 413, CLOSED]).await;
    let endless = "8000\r\n".to_owned() + &" ".repeat(0x8000) + "\r\n";
    answered_one_of(server, post("Transfer-Encoding: chunked", &endless.repeat(64)), &[413, CLOSED]).await;
    // Nothing of a body is read for one without a credential.
    let stranger = "POST /v1/memory_stores HTTP/1.1\r\nHost: x\r\nContent-Length: 1000000000000\r\n\r\n{";
    answered_one_of(server, stranger, &[401]).await;
    // Two credentials: components could read different ones.
    let get = |more: &str| {
        format!(
            "GET /v1/memory_stores HTTP/1.1\r\nHost: x\r\nConnection: close\r\nx-api-key: {key}\r\n{more}\r\n\r\n"
        )
    };
    answered_one_of(server, get("x-api-key: ks_live_other"), &[401]).await;
    answered_one_of(server, get("authorization: Bearer other"), &[401]).await;
}

/// Clients that send or read slowly.
async fn slow_clients(server: &Server, tenant: &Tenant) {
    let trickle = async |bytes: &'static [u8], repeated: &'static [u8]| {
        let begun = Instant::now();
        let (mut reader, mut writer) =
            TcpStream::connect(("127.0.0.1", server.port())).await.unwrap().into_split();
        let writing = async {
            writer.write_all(bytes).await.unwrap();
            while writer.write_all(repeated).await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let reading = async {
            let mut answer = String::new();
            let _ = reader.read_to_string(&mut answer).await;
            answer
        };
        let answer = tokio::select! {
            answer = reading => answer,
            () = writing => String::new(),
        };
        (begun.elapsed(), answer)
    };
    let quiet_body = async {
        let request = format!(
            "POST /v1/memory_stores HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\ncontent-type: application/json\r\n\
             Content-Length: 100\r\n\r\n{{",
            tenant.key
        );
        let begun = Instant::now();
        let (status, answer) = exchange(server, request.as_bytes()).await;
        assert_eq!(status, 408, "{answer}");
        assert!(answer.contains("timeout_error"), "{answer}");
        begun.elapsed()
    };
    let silent = async {
        let begun = Instant::now();
        let (status, _) = exchange(server, b"").await;
        assert_eq!(status, CLOSED);
        begun.elapsed()
    };
    let ((head, answer), quiet_body, silent) =
        tokio::join!(trickle(b"GET /livez HTTP/1.1\r\nA: ", b"x"), quiet_body, silent);
    assert_eq!(answer, "");
    for took in [head, quiet_body, silent] {
        assert!((9..25).contains(&took.as_secs()), "{took:?}");
    }
}

/// JSON at the edges of what it can say.
async fn bodies(server: &Server, tenant: &Tenant) {
    let client = server.client(tenant);
    let stores = "/v1/memory_stores".to_owned();
    let memories = format!("{stores}/{}/memories", tenant.store_id);
    let nested = |open: &str, close: &str| open.repeat(50_000) + "1" + &close.repeat(50_000);
    let arrays = nested("[", "]");
    for (path, body) in [
        (&stores, arrays.clone()),
        (&stores, nested("{\"a\":", "}")),
        (&stores, format!("{{\"name\":\"a\",\"metadata\":{arrays}}}")),
        (&stores, format!("{{\"name\":{}}}", "9".repeat(10_000))),
        (&stores, "{\"name\":1e999999}".to_owned()),
        (&stores, "{\"name\":\"a\",\"name\":\"b\"}".to_owned()),
        (&stores, "{\"name\":\"\\ud800\"}".to_owned()),
        (&stores, "{\"name\":\"\\udc00\\ud800\"}".to_owned()),
        (&memories, "{\"path\":\"/a\",\"content\":\"\\ud83d\"}".to_owned()),
        (&memories, "{\"path\":\"/\\u0000\",\"content\":\"\"}".to_owned()),
        (&memories, "{\"path\":\"/a\",\"content\":\"\\u0000\"}".to_owned()),
        (&memories, "{\"path\":\"/a\",\"content\":null}".to_owned()),
        (&memories, "\u{feff}{\"path\":\"/a\",\"content\":\"\"}".to_owned()),
        (&memories, format!("{{\"path\":\"{}\",\"content\":\"\"}}", "/a".repeat(100_000))),
    ] {
        let answer = post(&client, path, body.into_bytes()).await;
        assert_eq!(answer, 400, "{path}");
    }
    assert_eq!(post(&client, &stores, b"{\"name\":\"\xff\"}".to_vec()).await, 400);
    // Most errors of a tool call are results that the model can correct.
    let calls = tool_calls(tenant.store_id);
    for body in [
        arrays,
        "{\"command\":\"view\",\"command\":\"view\"}".to_owned(),
        "{\"command\":\"view\",\"path\":\"/memories\",\"view_range\":[1e999,2]}".to_owned(),
        format!("{{\"command\":\"view\",\"path\":\"/memories\",\"view_range\":[{},-1]}}", "9".repeat(500)),
        "{\"command\":\"create\",\"path\":\"/memories/\\ud800\",\"file_text\":\"\"}".to_owned(),
        format!("{{\"command\":\"view\",\"path\":{}}}", nested("[", "]")),
    ] {
        let status = post(&client, &calls, body.into_bytes()).await;
        assert!([200, 400].contains(&status), "{status}");
    }
    let listed = client.get(&memories).await.json();
    assert_eq!(listed["data"], json!([]));
}

async fn post(client: &Client, path: &str, body: Vec<u8>) -> u16 {
    let request = client.request(Method::POST, path);
    let request = request.header("content-type", "application/json");
    send(request.body(body)).await.status
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_connection_is_refused_except_for_health_probes() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let config = ServerConfig { more: String::new(), ..ServerConfig::default() };
    let config = deployment.config(&config).replace("[server]\n", "[server]\nmax_connections = 4\n");
    let command = keepsake_testkit::ServerCommand::new(crate::support::binary(), &config);
    let server = Server::start(command).await;
    let mut held = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        assert!(stream.read(&mut [0; 1024]).await.unwrap() > 0);
        held.push(stream);
    }
    let request = format!("GET /v1/memory_stores HTTP/1.1\r\nHost: x\r\nx-api-key: {}\r\n\r\n", tenant.key);
    let (status, answer) = exchange(&server, request.as_bytes()).await;
    assert_eq!(status, 529, "{answer}");
    assert!(answer.contains("retry-after: 1") && answer.contains("overloaded_error"), "{answer}");
    let probe = b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n";
    assert_eq!(exchange(&server, probe).await.0, 200);
    held.pop();
    crate::support::eventually("a place is free", PATIENCE, async || {
        let closing = request.replace("Host: x", "Host: x\r\nConnection: close");
        exchange(&server, closing.as_bytes()).await.0 == 200
    })
    .await;
}
