//! Requests as no client makes them, and clients that disconnect before the answer: the server
//! lives on.

use crate::prelude::*;

const CLOSED: u16 = 0;
/// Longer than any bound of the server's that is met here.
const PATIENCE: Duration = Duration::from_secs(30);
const END: &str = "Host: x\r\nConnection: close\r\n\r\n";

#[tokio::test(flavor = "multi_thread")]
async fn hostile_requests_harm_nothing() {
    let (_deployment, mut server, tenant, client) = on_sqlite().await;
    tokio::join!(heads(&server), frames(&server, &tenant), slow_clients(&server), slow_forms(&server));
    let listed = client.get(&format!("/v1/memory_stores/{}/memories", tenant.store_id)).await;
    assert_eq!(listed.json()["data"], json!([]));
    server.end().await;
    let log = server.output();
    assert!(!log.contains("panicked"), "{log}");
}

async fn connect(server: &Server) -> TcpStream {
    TcpStream::connect(("127.0.0.1", server.port())).await.unwrap()
}

/// Sends bytes; answers the status of the first answer, and all that came.
async fn exchange(server: &Server, bytes: &[u8]) -> (u16, String) {
    let exchanged = tokio::time::timeout(PATIENCE, async {
        let mut stream = connect(server).await;
        // The server may have seen enough before the end.
        let _ = stream.write_all(bytes).await;
        let mut answer = Vec::new();
        let _ = stream.read_to_end(&mut answer).await;
        String::from_utf8_lossy(&answer).into_owned()
    });
    let answer = exchanged.await.unwrap_or_else(|_| panic!("left waiting: {}", begin_of(bytes)));
    let status = answer.split(' ').nth(1).and_then(|status| status.parse().ok());
    (status.unwrap_or(CLOSED), answer)
}

fn begin_of(bytes: &[u8]) -> String {
    String::from_utf8_lossy(&bytes[..bytes.len().min(80)]).into_owned()
}

async fn answered_one_of(server: &Server, bytes: impl AsRef<[u8]>, statuses: &[u16]) {
    let bytes = bytes.as_ref();
    let (status, answer) = exchange(server, bytes).await;
    assert!(statuses.contains(&status), "{:?} was answered {status}: {answer}", begin_of(bytes));
}

async fn heads(server: &Server) {
    for head in [
        "\r\n\r\n\0\0\0\0\r\n\r\n".to_owned(),
        "GET / HTTP/9.9\r\n\r\n".to_owned(),
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n".to_owned(),
        "\u{16}\u{3}\u{1}\u{2}\r\n\r\n".to_owned(),
        format!("GET /\0 HTTP/1.1\r\n{END}"),
        format!("GET / HTTP/1.1\r\nA : b\r\n{END}"),
        format!("GET / HTTP/1.1\r\nA: b\r\n folded\r\n{END}"),
        format!("GET http://[::1/livez HTTP/1.1\r\n{END}"),
    ] {
        answered_one_of(server, head, &[400, CLOSED]).await;
    }
    let large = |bytes: usize| "x".repeat(bytes);
    for (line, header, statuses) in [
        ("TRACE /livez".to_owned(), String::new(), [405, 405]),
        ("CONNECT x:443".to_owned(), String::new(), [404, 405]),
        ("GET http://other/livez".to_owned(), String::new(), [200, 200]),
        (format!("GET /{}", large(100_000)), String::new(), [414, 431]),
        ("GET /livez".to_owned(), format!("A: {}\r\n", large(1 << 20)), [431, CLOSED]),
        ("GET /livez".to_owned(), "A: b\r\n".repeat(10_000), [431, CLOSED]),
    ] {
        answered_one_of(server, format!("{line} HTTP/1.1\r\n{header}{END}"), &statuses).await;
    }
    for path in [
        b"/v1/memory_stores/%ff".as_slice(),
        b"/v1/memory_stores/%00",
        b"/v1/../admin/v1/tenants",
        b"/v1/memory_stores/..%2f..%2f/memories",
        b"/v1/memory_stores?limit=%ff&page=%00",
        b"/v1/memory_stores/\xff\xfe",
    ] {
        let request = [b"GET ".as_slice(), path, b" HTTP/1.1\r\n", END.as_bytes()].concat();
        answered_one_of(server, request, &[400, 401, 404]).await;
    }
    let key = b"GET /v1/memory_stores HTTP/1.1\r\nx-api-key: \xff\xfe\r\n";
    answered_one_of(server, [&key[..], END.as_bytes()].concat(), &[401]).await;
}

/// Bodies whose length is a lie or a riddle.
async fn frames(server: &Server, tenant: &Tenant) {
    let stores = |method: &str, headers: &str, body: &str| {
        let key = &tenant.key;
        format!("{method} /v1/memory_stores HTTP/1.1\r\nx-api-key: {key}\r\n{headers}\r\n{END}{body}")
    };
    let post = |headers: &str, body: &str| {
        stores("POST", &format!("content-type: application/json\r\n{headers}"), body)
    };
    for (headers, body) in [
        ("Content-Length: 999999999999999999999999999999", "{}"),
        ("Content-Length: -1", "{}"),
        ("Content-Length: 2\r\nContent-Length: 3", "{}"),
        ("Transfer-Encoding: gzip", "{}"),
        // The framing that counts is the chunked one.
        ("Content-Length: 5\r\nTransfer-Encoding: chunked", "2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "ffffffffffffffffffff\r\n{}\r\n"),
        ("Transfer-Encoding: chunked", "-2\r\n{}\r\n0\r\n\r\n"),
        ("Transfer-Encoding: chunked", "2\r\n{}0\r\n\r\n"),
    ] {
        answered_one_of(server, post(headers, body), &[400, CLOSED]).await;
    }
    let trillion = "Content-Length: 1000000000000";
    answered_one_of(server, post(trillion, "{"), &[413]).await;
    let extended = format!("2;{}\r\n{{}}\r\n0\r\n\r\n", "x".repeat(1 << 20));
    answered_one_of(server, post("Transfer-Encoding: chunked", &extended), &[400, 413, CLOSED]).await;
    let endless = format!("8000\r\n{}\r\n", " ".repeat(0x8000)).repeat(64);
    answered_one_of(server, post("Transfer-Encoding: chunked", &endless), &[413, CLOSED]).await;
    // Nothing of a body is read for one without a credential.
    let stranger = format!("POST /v1/memory_stores HTTP/1.1\r\nHost: x\r\n{trillion}\r\n\r\n{{");
    answered_one_of(server, stranger, &[401]).await;
    // Two credentials: components could read different ones.
    let twice = "authorization: Basic a\r\nauthorization: Basic b";
    let repeated = format!("x-api-key: {}", tenant.key);
    for other in ["x-api-key: ks_live_other", "authorization: Bearer other", twice, &repeated] {
        answered_one_of(server, stores("GET", other, ""), &[401]).await;
    }
    let same = format!("authorization: Bearer {}", tenant.key);
    for harmless in ["authorization: Basic a", &same] {
        answered_one_of(server, stores("GET", harmless, ""), &[200]).await;
    }
}

/// Clients that send nothing, or a head that does not end.
async fn slow_clients(server: &Server) {
    let silent = async {
        let begun = Instant::now();
        assert_eq!(exchange(server, b"").await.0, CLOSED);
        begun.elapsed()
    };
    let trickling = async {
        let begun = Instant::now();
        let (mut reader, mut writer) = connect(server).await.into_split();
        let writing = async {
            writer.write_all(b"GET /livez HTTP/1.1\r\nA: ").await.unwrap();
            while writer.write_all(b"x").await.is_ok() {
                tokio::time::sleep(Duration::from_millis(500)).await;
            }
        };
        let mut answer = String::new();
        tokio::select! {
            _ = reader.read_to_string(&mut answer) => {}
            () = writing => {}
        }
        assert_eq!(answer, "");
        begun.elapsed()
    };
    let (silent, trickling) = tokio::join!(silent, trickling);
    for took in [silent, trickling] {
        assert!((9..25).contains(&took.as_secs()), "{took:?}");
    }
}

/// Clients that state the length of a form and send nothing leave its memory to others.
async fn slow_forms(server: &Server) {
    let of_length = |length: usize| {
        let form = format!("Content-Type: application/x-www-form-urlencoded\r\nContent-Length: {length}\r\n");
        format!("POST /console/sign-in HTTP/1.1\r\n{form}{END}")
    };
    let mut slow = Vec::new();
    for _ in 0..4 {
        let mut stream = connect(server).await;
        stream.write_all(of_length(2_000_000).as_bytes()).await.unwrap();
        slow.push(stream);
    }
    let large = of_length(2_000_000) + &"x".repeat(2_000_000);
    answered_one_of(server, large, &[403]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn excess_connection_is_refused_except_for_health_probes() {
    let deployment = Deployment::new(Pair::Sqlite).await;
    let tenant = deployment.tenant().await;
    let command = deployment.command(&ServerConfig::default());
    let server = Server::start(command.env("KEEPSAKE_SERVER_MAX_CONNECTIONS", "4")).await;
    let mut held = Vec::new();
    let hold_another = async || {
        let mut stream = connect(&server).await;
        stream.write_all(b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut answer = [0; 1024];
        let length = stream.read(&mut answer).await.unwrap();
        let answer = String::from_utf8_lossy(&answer[..length]).into_owned();
        assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
        // The server frees the place of a connection some time after its client saw the end.
        // Until then the closed connection of `Server::start` still takes a place, and this
        // connection can be beyond the limit: it is served as a health probe and closed.
        (!answer.contains("connection: close")).then_some(stream)
    };
    while held.len() < 4 {
        held.extend(hold_another().await);
    }
    let request = format!("GET /v1/memory_stores HTTP/1.1\r\nx-api-key: {}\r\n{END}", tenant.key);
    let (status, answer) = exchange(&server, request.as_bytes()).await;
    assert_eq!(status, 529, "{answer}");
    assert!(answer.contains("retry-after: 1") && answer.contains("overloaded_error"), "{answer}");
    assert_eq!(exchange(&server, b"GET /readyz HTTP/1.1\r\nHost: x\r\n\r\n").await.0, 200);
    held.pop();
    let is_free = async || exchange(&server, request.as_bytes()).await.0 == 200;
    eventually("a place is free", PATIENCE, is_free).await;
}

const LEAVING: usize = 600;
const AT_ONCE: usize = 20;
/// Moments at which they leave; has no factor in common with the four kinds.
const LEAVING_STEPS: usize = 33;

const STUCK: &str = "SELECT count(*) FROM pg_stat_activity \
                     WHERE datname = current_database() AND state LIKE 'idle in transaction%'";
/// Sooner than the server's own time limit for such sessions.
const STUCK_WITHIN: Duration = Duration::from_secs(5);

on_pairs! { disconnecting_clients_affect_no_others }

async fn disconnecting_clients_affect_no_others(pair: Pair) {
    let (deployment, tenant, mut server, client) = started(pair).await;
    let database = deployment.database().await;
    let mut left_unanswered = 0;
    for first in (0..LEAVING).step_by(AT_ONCE) {
        let leavers = (first..first + AT_ONCE).map(|n| send_and_leave(&server, &tenant, n));
        left_unanswered += join_all(leavers).await.into_iter().filter(|left| *left).count();
        if pair.has_postgres() {
            // Each time: the next request on the connection would hide it.
            let none_is_stuck = || async { database.number(STUCK).await == 0 };
            eventually("no transaction is left open", STUCK_WITHIN, none_is_stuck).await;
        }
    }
    database.close().await;
    assert!(left_unanswered > LEAVING / 2, "only {left_unanswered} of {LEAVING} left before their answer");
    // More at once than there are connections.
    let writes = (0..40).map(async |n| {
        client.create_file(&tenant, &format!("/memories/after/{n}"), "x").await;
    });
    join_all(writes).await;
    let store = ok(&client.get(&format!("/v1/memory_stores/{}", tenant.store_id)).await);
    assert!(store["memory_count"].as_u64() > Some(40), "no create got through: nothing was tried");
    server.end().await;
    // Each file that a leaver created is there as a whole, and counted.
    server.beside("verify").await.ok();
}

/// Sends a request and closes the connection, each a little later than the one
/// before, so that they leave at every step of the way; answers whether this
/// one left before it was answered.
async fn send_and_leave(server: &Server, tenant: &Tenant, n: usize) -> bool {
    let key = &tenant.key;
    let (path, text) = (format!("/memories/leavers/{n}"), "left behind".repeat(200));
    let body = json!({"command": "create", "path": path, "file_text": text}).to_string();
    let create = format!(
        "POST {} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\ncontent-type: application/json\r\n\
         content-length: {}\r\n\r\n{body}",
        tool_calls(tenant.store_id),
        body.len()
    );
    let retrieve =
        format!("GET /v1/memory_stores/{} HTTP/1.1\r\nhost: x\r\nx-api-key: {key}\r\n\r\n", tenant.store_id);
    // A retrieval is over sooner than a create.
    let (sent, pace) = match n % 4 {
        0 => (create.as_str(), Duration::from_micros(400)),
        1 | 2 => (retrieve.as_str(), Duration::from_micros(60)),
        _ => (&create[..create.len() - body.len() / 2], Duration::ZERO),
    };
    let mut stream = TcpStream::connect(("127.0.0.1", server.port())).await.unwrap();
    stream.write_all(sent.as_bytes()).await.unwrap();
    // A timer knows whole milliseconds only.
    let leave_at = Instant::now() + pace * u32::try_from(n % LEAVING_STEPS).unwrap();
    while Instant::now() < leave_at {
        tokio::task::yield_now().await;
    }
    let mut answer = [0; 1];
    let is_answered = matches!(stream.try_read(&mut answer), Ok(length) if length > 0);
    drop(stream);
    !is_answered
}
