//! A browser without script: it keeps cookies, follows nothing, sends forms.

use std::collections::BTreeMap;

use reqwest::header::{COOKIE, HeaderMap, HeaderName, HeaderValue, ORIGIN, SET_COOKIE};
use reqwest::redirect::Policy;
use reqwest::{Method, RequestBuilder};

use crate::support::client::{plain_http, send};
use crate::support::server::started;
use crate::support::{Answer, Deployment, Pair, Server, Tenant};

pub(crate) const UPLOAD: &str = "/console/transfer";

pub(crate) type Page = Answer;

impl Answer {
    #[track_caller]
    pub(crate) fn answered(self, status: u16) -> Self {
        assert_eq!(self.status, status, "{}", self.text);
        self
    }

    /// Where a redirect leads; empty if this is none.
    pub(crate) fn location(&self) -> &str {
        self.header("location")
    }

    /// The value of the first hidden field of this name.
    pub(crate) fn field(&self, name: &str) -> String {
        self.after(&format!("name=\"{name}\" value=\""))
    }

    /// The rest of the attribute or text that begins so.
    pub(crate) fn after(&self, start: &str) -> String {
        let found = self.text.split_once(start).unwrap_or_else(|| panic!("no {start}: {}", self.text));
        found.1.split(['"', '<']).next().unwrap().replace("&#38;", "&")
    }

    #[track_caller]
    pub(crate) fn has(&self, part: &str) {
        assert!(self.text.contains(part), "{part} is not in {}: {}", self.status, self.text);
    }

    #[track_caller]
    pub(crate) fn lacks(&self, part: &str) {
        assert!(!self.text.contains(part), "{part} is in {}", self.text);
    }
}

#[derive(Debug, Clone)]
pub(crate) struct Browser {
    http: reqwest::Client,
    url: String,
    pub(crate) cookies: BTreeMap<String, String>,
}

impl Browser {
    pub(crate) fn new(url: &str) -> Self {
        let http = plain_http().redirect(Policy::none()).build().unwrap();
        Self { http, url: url.to_owned(), cookies: BTreeMap::new() }
    }

    pub(crate) async fn signed_in(url: &str, credential: &str) -> Self {
        let mut browser = Self::new(url);
        browser.sign_in(credential, "").await.answered(303);
        browser
    }

    pub(crate) async fn sign_in(&mut self, credential: &str, next: &str) -> Page {
        let form = self.open(&format!("/console/sign-in?next={next}")).await;
        let (token, next) = (form.field("token"), form.field("next"));
        let fields = [("token", token.as_str()), ("credential", credential), ("next", next.as_str())];
        self.post("/console/sign-in", &fields).await
    }

    pub(crate) fn request(&self, method: Method, path: &str) -> RequestBuilder {
        let request = self.http.request(method, format!("{}{path}", self.url));
        let cookies: Vec<_> = self.cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
        if cookies.is_empty() { request } else { request.header(COOKIE, cookies.join("; ")) }
    }

    pub(crate) async fn send(&mut self, request: RequestBuilder) -> Page {
        let page = send(request).await;
        for cookie in page.headers.get_all(SET_COOKIE) {
            let cookie = cookie.to_str().unwrap();
            // Only the cookie for the return from an issuer's site is less strict.
            let same_site = if cookie.contains("keepsake_issuer=") { "=Lax" } else { "=Strict" };
            assert!(cookie.contains("; HttpOnly") && cookie.contains(same_site), "{cookie}");
            let (name, value) = cookie.split(';').next().unwrap().split_once('=').unwrap();
            if value.is_empty() {
                self.cookies.remove(name);
            } else {
                self.cookies.insert(name.to_owned(), value.to_owned());
            }
        }
        page
    }

    pub(crate) async fn get(&mut self, path: &str) -> Page {
        let request = self.request(Method::GET, path);
        self.send(request).await
    }

    pub(crate) async fn open(&mut self, path: &str) -> Page {
        let page = self.get(path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.text);
        page
    }

    /// The request with a form; to the page that receives a file, with an empty file.
    pub(crate) fn form(&self, path: &str, fields: &[(&str, &str)]) -> RequestBuilder {
        if path == UPLOAD {
            return self.form_with_file(fields, b"");
        }
        let encoded = fields.iter().map(|(name, value)| format!("{name}={}", encoded(value)));
        let body = encoded.collect::<Vec<_>>().join("&");
        self.request(Method::POST, path)
            .header("content-type", "application/x-www-form-urlencoded")
            .header(ORIGIN, &self.url)
            .body(body)
    }

    pub(crate) fn form_with_file(&self, fields: &[(&str, &str)], file: &[u8]) -> RequestBuilder {
        let part = "--x\r\nContent-Disposition: form-data; name=";
        let fields = fields.iter().map(|(name, value)| format!("{part}\"{name}\"\r\n\r\n{value}\r\n"));
        let head =
            format!("{part}\"file\"; filename=\"notes.tar.zst\"\r\nContent-Type: application/zstd\r\n\r\n");
        let start = fields.collect::<Vec<_>>().concat() + &head;
        let body = [start.as_bytes(), file, b"\r\n--x--\r\n"].concat();
        self.request(Method::POST, UPLOAD)
            .header("content-type", "multipart/form-data; boundary=x")
            .header(ORIGIN, &self.url)
            .body(body)
    }

    /// Sends a form, of which the browser says this.
    pub(crate) async fn post_as(
        &mut self,
        (name, value): (&'static str, &'static str),
        path: &str,
        fields: &[(&str, &str)],
    ) -> Page {
        // In place of the origin, which `form` has set.
        let said = (HeaderName::from_static(name), HeaderValue::from_static(value));
        let request = self.form(path, fields).headers(HeaderMap::from_iter([said]));
        self.send(request).await
    }

    pub(crate) async fn post(&mut self, path: &str, fields: &[(&str, &str)]) -> Page {
        let request = self.form(path, fields);
        self.send(request).await
    }

    pub(crate) async fn submit(&mut self, page: &Page, path: &str, fields: &[(&str, &str)]) -> Page {
        let token = page.field("token");
        let mut all = vec![("token", token.as_str())];
        all.extend_from_slice(fields);
        self.post(path, &all).await
    }

    /// Sends a form and follows the redirect to the page that confirms the action.
    pub(crate) async fn act(&mut self, page: &Page, path: &str, fields: &[(&str, &str)]) -> Page {
        let answer = self.submit(page, path, fields).await;
        assert_eq!(answer.status, 303, "{path}: {}", answer.text);
        let next = answer.location().to_owned();
        let page = self.open(&next).await;
        page.has("role=\"status\"");
        page
    }
}

/// Percent-encoded but for letters and digits.
pub(crate) fn encoded(text: &str) -> String {
    let encode = |byte: u8| {
        if byte.is_ascii_alphanumeric() { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    text.bytes().map(encode).collect()
}

pub(crate) async fn console_on(pair: Pair) -> (Deployment, Tenant, Server, Browser) {
    let (deployment, tenant, server, _) = started(pair).await;
    let browser = Browser::signed_in(&server.url(), &tenant.key).await;
    (deployment, tenant, server, browser)
}
