//! What to write instead of a URL that does not lead to the API of a server.

use std::error::Error;
use std::io::{self, ErrorKind};

use reqwest::header::{CONNECTION, CONTENT_TYPE, HeaderMap, HeaderName, LOCATION};
use reqwest::{Response, StatusCode, Url, Version};

use crate::{ClientError, Result};

/// Path segments at which the URL of a server ends: clients add them and what follows, or
/// they lead to pages for people.
const ENDS: [&str; 5] = ["admin", "console", "docs", "mcp", "v1"];

/// The status of an answer, and what its head shows of the server.
#[derive(Debug, Clone, Copy)]
pub struct AnswerHead {
    pub status: StatusCode,
    /// Whether a port with TLS may have refused a request without TLS.
    may_want_tls: bool,
}

impl AnswerHead {
    /// A port with TLS answers a request without TLS before any application is asked: with a page or a text, or with
    /// no type at all. It then closes the connection.
    pub fn of(answer: &Response) -> Self {
        let (status, headers) = (answer.status(), answer.headers());
        let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
        let kind = text(CONTENT_TYPE).map(|kind| kind.split(';').next().unwrap_or_default().trim());
        let is_page = kind.is_none_or(|kind| {
            ["text/html", "text/plain"].iter().any(|page| kind.eq_ignore_ascii_case(page))
        });
        let is_last = answer.version() < Version::HTTP_11
            || text(CONNECTION).is_some_and(|value| value.eq_ignore_ascii_case("close"));
        let is_of_application = headers.contains_key("request-id");
        let may_want_tls = status == StatusCode::BAD_REQUEST && is_page && is_last && !is_of_application;
        Self { status, may_want_tls }
    }
}

/// Parses the URL of a server that a person gave. The error names the rule that it
/// breaks, and what to write instead.
pub fn server_url(text: &str) -> Result<Url> {
    // A text with `@` may hold a password: the message does not repeat it.
    let value = if text.contains('@') { "" } else { text };
    let refused = |reason: String| ClientError::setting("url", value, &reason);
    let mut url = match Url::parse(text) {
        Ok(url) if matches!(url.scheme(), "http" | "https") => url,
        Err(error) if text.contains("://") => return Err(refused(error.to_string())),
        _ => {
            let is_without_scheme = !text.contains("://") && !text.starts_with('/') && !text.contains('@');
            let is_host = is_without_scheme && Url::parse(&format!("http://{text}")).is_ok();
            let instead = if is_host {
                format!(": write http://{text}, or https://{text} for a port with TLS")
            } else {
                String::new()
            };
            return Err(refused(format!("it must start with http:// or https://{instead}")));
        }
    };
    let is_plain = url.username().is_empty() && url.password().is_none();
    if is_plain && url.query().is_none() && url.fragment().is_none() {
        return Ok(url);
    }
    remove_secrets(&mut url);
    let reason = format!("it must have no credentials, query and fragment: write {}", shown(&url));
    Err(ClientError::setting("url", "", &reason))
}

/// Leaves only the scheme, the host and the path of a URL.
fn remove_secrets(url: &mut Url) {
    let _ = (url.set_username(""), url.set_password(None));
    url.set_query(None);
    url.set_fragment(None);
}

/// The advice to add to the reason of an answer, if the URL has one of the [`ENDS`]; else
/// empty.
pub(crate) fn of_answer(base: &Url, status: StatusCode) -> String {
    let is_of_another_path =
        status.is_success() || [StatusCode::NOT_FOUND, StatusCode::METHOD_NOT_ALLOWED].contains(&status);
    match without_end(base).filter(|_| is_of_another_path) {
        Some(instead) => format!("; the client adds the end of the path itself: write {instead}"),
        None => String::new(),
    }
}

/// As [`of_answer`], for an answer that is not one of the API.
pub(crate) fn of_other_answer(base: &Url, head: AnswerHead) -> String {
    let of_answer = of_answer(base, head.status);
    if !of_answer.is_empty() || head.status.is_server_error() {
        return of_answer;
    }
    let url = shown(base);
    match url.strip_prefix("http://") {
        Some(rest) if head.may_want_tls => format!("; a port with TLS may answer so: write https://{rest}"),
        _ => format!("; check that {url} is the URL of a server with this API"),
    }
}

/// The error of an answer that is not one of the API: a redirect, or a page that is
/// missing because the URL has one of the [`ENDS`].
pub(crate) fn misdirected(
    base: &Url,
    asked: &Url,
    status: StatusCode,
    headers: &HeaderMap,
) -> Option<ClientError> {
    if status.is_redirection() {
        return Some(redirected(base, asked, status, headers));
    }
    let instead = without_end(base).filter(|_| status == StatusCode::NOT_FOUND)?;
    Some(wrong_url(&shown(base), format!("answered with status {status}"), Some(instead)))
}

/// The error of a redirect, which would send the credential to another server.
pub(crate) fn redirected(base: &Url, asked: &Url, status: StatusCode, headers: &HeaderMap) -> ClientError {
    let location = headers.get(LOCATION).and_then(|value| value.to_str().ok());
    let Some(mut target) = location.and_then(|location| asked.join(location).ok()) else {
        let found = format!("answered with status {status}, a redirect to nowhere");
        return wrong_url(&shown(base), found, None);
    };
    remove_secrets(&mut target);
    let found = format!("answered with status {status}, a redirect to {target}, which is not followed");
    let end = asked.path().strip_prefix(base.path().trim_end_matches('/')).unwrap_or_default();
    let start = target.path().strip_suffix(end).map(str::to_owned);
    let instead = start.map(|path| {
        target.set_path(&path);
        shown(&target)
    });
    wrong_url(&shown(base), found, instead.filter(|instead| *instead != shown(base)))
}

/// The error of an attempt that failed, if the port uses TLS and the URL does not, or the
/// reverse.
pub(crate) fn of_scheme(url: &str, error: &reqwest::Error) -> Option<ClientError> {
    let (found, instead) = if has_cause(error, is_no_tls) {
        ("answered without TLS", format!("http://{}", url.strip_prefix("https://")?))
    } else if has_cause(error, is_no_http) {
        let found = "answered in another protocol than HTTP, as a port with TLS does";
        (found, format!("https://{}", url.strip_prefix("http://")?))
    } else {
        return None;
    };
    Some(wrong_url(url, found.to_owned(), Some(instead)))
}

/// The advice to add to the cause of a connection that failed, if the port closed it
/// during the TLS handshake. A port without TLS may do so, and a server that is starting.
pub(crate) fn of_closed_handshake(url: &str, error: &reqwest::Error) -> Option<String> {
    let rest = url.strip_prefix("https://")?;
    has_cause(error, is_closed).then(|| format!("; if the port is one without TLS, write http://{rest}"))
}

fn is_no_tls(error: &(dyn Error + 'static)) -> bool {
    let no_tls = rustls::Error::InvalidMessage(rustls::InvalidMessage::InvalidContentType);
    error.downcast_ref::<rustls::Error>() == Some(&no_tls)
}

/// Whether the head of an answer is not HTTP.
fn is_no_http(error: &(dyn Error + 'static)) -> bool {
    let is_other =
        |error: &hyper::Error| error.is_parse() && !error.is_parse_status() && !error.is_parse_too_large();
    error.downcast_ref::<hyper::Error>().is_some_and(is_other)
}

fn is_closed(error: &(dyn Error + 'static)) -> bool {
    let closed = [ErrorKind::UnexpectedEof, ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
    error.downcast_ref::<io::Error>().is_some_and(|error| closed.contains(&error.kind()))
}

/// Whether an error or one of its causes is a certain one.
fn has_cause(error: &(dyn Error + 'static), is_meant: fn(&(dyn Error + 'static)) -> bool) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if is_meant(error) {
            return true;
        }
        // The source of an I/O error leaves out the error that it holds.
        let held = error.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let held = held.map(|held| held as &(dyn Error + 'static));
        next = held.or_else(|| error.source());
    }
    false
}

fn wrong_url(url: &str, found: String, instead: Option<String>) -> ClientError {
    let advice = match instead {
        Some(instead) => format!("write {instead}"),
        None => "write the URL of the server itself".to_owned(),
    };
    ClientError::WrongUrl { url: url.to_owned(), found, advice }
}

/// The URL up to one of the [`ENDS`]; `None` if it has none.
fn without_end(base: &Url) -> Option<String> {
    let segments: Vec<_> = base.path_segments()?.filter(|segment| !segment.is_empty()).collect();
    let end = segments.iter().position(|segment| ENDS.contains(segment))?;
    let mut url = base.clone();
    url.set_path(&segments[..end].join("/"));
    Some(shown(&url))
}

/// The URL without a final `/`.
pub(crate) fn shown(url: &Url) -> String {
    url.as_str().trim_end_matches('/').to_owned()
}

#[cfg(test)]
mod tests {
    use reqwest::StatusCode;
    use serde_json::Value;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::TcpListener;

    use super::AnswerHead;
    use crate::Client;

    /// The error of a call to a port that gives this answer; `PORT` is its address.
    async fn error_of(url: &str, answer: &str) -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap().to_string();
        let client = Client::new(&url.replace("PORT", &address), &"ks_live_x".into()).unwrap();
        let serving = async {
            let (mut connection, _) = listener.accept().await.unwrap();
            let _ = connection.read(&mut [0; 4 << 10]).await;
            let _ = connection.write_all(answer.as_bytes()).await;
        };
        let query = [("limit", Some("1"))];
        let asking = client.get::<Value>(&["memory_stores"], &query);
        let ((), answered) = tokio::join!(serving, asking);
        answered.unwrap_err().to_string().replace(&address, "PORT")
    }

    #[tokio::test]
    async fn error_of_a_wrong_url_says_what_was_reached_and_what_to_write() {
        let moved = |to: &str| format!("HTTP/1.1 301 Moved\r\nlocation: {to}\r\ncontent-length: 0\r\n\r\n");
        let with = |status: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        let (page, page_404) = (with("200 OK", "<html>"), with("404 No", "<html>"));
        let closed = "400 No\r\nconnection: close";
        let of_application = with(&format!("{closed}\r\nrequest-id: 1"), "");
        let elsewhere = moved("https://u:p@h:1/m/v1/memory_stores?t#f");
        let no_route = r#"{"error":{"type":"not_found_error","message":"no such route"}}"#;
        for (url, answer, reached, instead) in [
            ("https://PORT", with("400 Bad Request", ""), "https://PORT answered without TLS", "http://PORT"),
            (
                "http://PORT",
                "\x15\x03\x01".to_owned(),
                "answered in another protocol than HTTP, as a port with TLS",
                "https://PORT",
            ),
            ("http://PORT/k", with(closed, "to an HTTPS server"), "a port with TLS may", "https://PORT/k"),
            ("http://PORT/k/v1/", with("404 No", no_route), "no such route; ", "http://PORT/k"),
            ("http://PORT/admin/v1", page_404.clone(), "/admin/v1/v1/memory_stores answered", "http://PORT"),
            ("http://PORT/console", page, "not in the form of this API", "http://PORT"),
            ("http://PORT/k/mcp/memstore_1", with("404 No", no_route), "no such route; ", "http://PORT/k"),
            ("http://PORT/k", elsewhere, "a redirect to https://h:1/", "https://h:1/m"),
            ("http://PORT", moved("/sign-in?t=1"), "to http://PORT/sign-in,", "the URL of the server itself"),
            ("http://PORT", moved("//["), "a redirect to nowhere", "the URL of the server itself"),
        ] {
            let error = error_of(url, &answer).await;
            let is_told = error.contains(reached) && error.ends_with(&format!(": write {instead}"));
            assert!(is_told && !error.contains('?'), "{url}: {error}");
        }
        let advice = "; check that http://PORT is the URL of a server with this API";
        for answer in [page_404, with("400 No", ""), of_application] {
            let other = error_of("http://PORT", &answer).await;
            assert!(other.ends_with(advice), "{other}");
        }
    }

    #[tokio::test]
    async fn port_that_closes_the_connection_in_the_tls_handshake_may_be_one_without_tls() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let url = format!("https://{address}");
        let client = Client::new(&url, &"ks_live_x".into()).unwrap();
        let closing = async { drop(listener.accept().await.unwrap()) };
        let ((), sent) = tokio::join!(closing, client.http.get(&url).send());
        let error = client.unreachable(&sent.unwrap_err());
        let advice = format!("; if the port is one without TLS, write http://{address}");
        assert!(error.to_string().ends_with(&advice) && error.is_transient(), "{error}");
    }

    #[test]
    fn answer_without_json_says_what_to_write() {
        let told = |url: &str, status: StatusCode| {
            let head = AnswerHead { status, may_want_tls: true };
            Client::new(url, &"ks_live_x".into()).unwrap().no_json(head)
        };
        assert!(told("http://h/k", StatusCode::BAD_REQUEST).ends_with(": write https://h/k"));
        assert!(told("http://h/console", StatusCode::METHOD_NOT_ALLOWED).ends_with(": write http://h"));
    }
}
