#![allow(clippy::unwrap_used)] // a test panics on purpose

use super::*;

fn parse(text: &str) -> HarnessUrl {
    HarnessUrl::parse(text).unwrap()
}

fn refusal(text: &str) -> UrlError {
    HarnessUrl::parse(text).unwrap_err()
}

fn tcp(host: &str, port: u16) -> Endpoint {
    Endpoint::Tcp { host: host.to_owned(), port }
}

#[test]
fn a_web_socket_url_is_taken_apart() {
    let cases = [
        (
            "ws://brain.example:7000/v1/executor?x=1",
            tcp("brain.example", 7000),
            "brain.example:7000",
            "/v1/executor?x=1",
        ),
        ("ws://brain.example", tcp("brain.example", 80), "brain.example", "/"),
        ("ws://brain.example:80/", tcp("brain.example", 80), "brain.example", "/"),
        ("ws://brain.example?x=%20&y", tcp("brain.example", 80), "brain.example", "/?x=%20&y"),
        (" WS://Brain.Example.:1/A\n", tcp("brain.example.", 1), "brain.example.:1", "/A"),
        ("ws://127.0.0.1:65535/", tcp("127.0.0.1", 65535), "127.0.0.1:65535", "/"),
        ("ws://[::1]:7000/a", tcp("::1", 7000), "[::1]:7000", "/a"),
        ("ws://[2001:DB8:0::1]", tcp("2001:db8::1", 80), "[2001:db8::1]", "/"),
        ("ws://[::ffff:10.0.0.1]:9/", tcp("::ffff:10.0.0.1", 9), "[::ffff:10.0.0.1]:9", "/"),
        ("ws://a_b-c.d/@scope/x", tcp("a_b-c.d", 80), "a_b-c.d", "/@scope/x"),
    ];
    for (text, endpoint, host, target) in cases {
        let url = parse(text);
        assert_eq!((url.endpoint(), url.host(), url.target()), (&endpoint, host, target), "{text}");
        assert_eq!(url.scheme(), Scheme::Ws);
        assert_eq!(parse(&url.to_string()), url, "{text} is written as {url}");
    }
}

#[test]
fn tls_is_recognised_and_refused_for_what_it_is() {
    let url = HarnessUrl::recognise("wss://brain.example/x").unwrap();
    assert_eq!((url.endpoint(), url.host()), (&tcp("brain.example", 443), "brain.example"));
    assert_eq!(HarnessUrl::recognise("wss://b:80/").unwrap().host(), "b:80");
    assert_eq!(refusal("wss://brain.example/x"), UrlError::TlsUnavailable);
    assert_eq!(refusal("wss://brain.example:x/"), UrlError::Port);
    assert!(refusal("wss://b/").to_string().contains("TLS"));
}

#[cfg(unix)]
#[test]
fn a_unix_socket_is_a_path_and_perhaps_a_query() {
    use std::os::unix::ffi::OsStrExt;

    let cases: [(&str, &[u8], &str); 5] = [
        ("unix:///run/bma/brain.sock", b"/run/bma/brain.sock", "/"),
        ("unix:///tmp/with%20space%3F%25", b"/tmp/with space?%", "/"),
        ("unix:///tmp/raw space/\u{e9}@x", "/tmp/raw space/\u{e9}@x".as_bytes(), "/"),
        ("unix:///tmp/not-utf8-%ff", b"/tmp/not-utf8-\xff", "/"),
        ("unix:///tmp/a?x=1", b"/tmp/a", "/?x=1"),
    ];
    for (text, path, target) in cases {
        let url = parse(text);
        let Endpoint::Unix(found) = url.endpoint() else { panic!("{text} is {url:?}") };
        assert_eq!(found.as_os_str().as_bytes(), path, "{text}");
        assert_eq!((url.host(), url.target(), url.scheme()), ("localhost", target, Scheme::Unix));
        assert_eq!(parse(&url.to_string()), url, "{text} is written as {url}");
    }
    for text in
        ["unix://run/x.sock", "unix://", "unix:///", "unix:///run/", "unix:///a%0", "unix:///a%zz", "unix:///a%00b"]
    {
        assert!(matches!(refusal(text), UrlError::Path { .. }), "{text}: {}", refusal(text));
    }
}

#[test]
fn a_named_pipe_is_a_name() {
    for text in ["npipe:////./pipe/bma%20brain", "npipe://./pipe/bma brain"] {
        let url = parse(text);
        assert_eq!(url.endpoint(), &Endpoint::NamedPipe("bma brain".to_owned()));
        assert_eq!((url.host(), url.target(), url.scheme()), ("localhost", "/", Scheme::NamedPipe));
        assert_eq!(url.to_string(), "npipe:////./pipe/bma%20brain");
    }
    for text in
        ["npipe:////server/pipe/x", "npipe:////./pipe/", "npipe:////./pipe/a/b", "npipe:////./pipe/a%5Cb", "npipe://"]
    {
        assert!(matches!(refusal(text), UrlError::Path { .. }), "{text}: {}", refusal(text));
    }
}

#[test]
fn what_is_wrong_is_named() {
    let cases = [
        ("", "scheme"),
        ("brain.example:7000", "scheme"),
        ("ws:/brain.example", "scheme"),
        ("http://brain.example/", "ws://"),
        ("https://brain.example/", "wss://"),
        ("ftp://brain.example/", "\"ftp\""),
        ("ws://", "host"),
        ("ws:///path", "host"),
        ("ws://:80/", "host"),
        ("ws://a..b/", "host"),
        ("ws://a b/", "character 7"),
        ("ws://m\u{fc}nchen.example/", "character 7"),
        ("ws://a,b/", "host"),
        ("ws://256.1.1.1/", "IPv4"),
        ("ws://1.2.3/", "IPv4"),
        ("ws://::1/", "brackets"),
        ("ws://fe80::1:80/", "brackets"),
        ("ws://[::1/", "IPv6"),
        ("ws://[::1]x/", "IPv6"),
        ("ws://[::g]/", "IPv6"),
        ("ws://[fe80::1%25eth0]/", "zone"),
        ("ws://a:/", "port"),
        ("ws://a:0/", "port"),
        ("ws://a:65536/", "port"),
        ("ws://a:-1/", "port"),
        ("ws://a:8o/", "port"),
        ("ws://a/#top", "fragment"),
        ("ws://a/\r\nX-Evil: 1", "character 8"),
        ("ws://a/?q=\u{0}", "character 11"),
        ("unix:///a?x= y", "character 13"),
    ];
    for (text, named) in cases {
        let error = refusal(text).to_string();
        assert!(error.contains(named), "{text:?}: {error}");
        assert!(!error.contains('\n'), "{text:?}: {error}");
    }
}

#[test]
fn a_credential_is_refused_and_not_repeated() {
    let in_front = [
        "ws://hunter2@brain.example/",
        "ws://user:hunter2@brain.example:80/x",
        "ws://user:hunter2/more@brain.example/",
        "wss://user:hunter2@brain.example/#",
        "unix://hunter2@/run/x.sock",
    ];
    let in_query = [
        "ws://a/?token=hunter2",
        "ws://a/?x=1&Access_Token=hunter2",
        "ws://a/?x=1;api-key=hunter2",
        "ws://a/?%74oken=hunter2",
        "ws://a?password=hunter2",
        "wss://a/?ticket=hunter2",
        "unix:///a?token=hunter2",
    ];
    for (texts, part) in [(&in_front[..], "user information"), (&in_query[..], "query")] {
        for text in texts {
            let error = refusal(text);
            assert_eq!(error, UrlError::Credential { part }, "{text}");
            assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
        }
    }
    for text in ["ws://a/?session_id=1&server_key=x&channel=mcp", "ws://a/token", "ws://a/?x=token", "ws://a/?tokens=1"]
    {
        assert_eq!(parse(text).to_string(), text);
    }
}

#[test]
fn nothing_of_a_broken_url_is_repeated_but_its_scheme() {
    for text in [
        "hunter2",
        "ws://hunter2:hunter2/",
        "ws://hunter2,/",
        "ws://user:hunter2#@a/",
        "ws://[hunter2]/",
        "ws://a/hunter2#hunter2",
        "unix://hunter2",
    ] {
        let error = refusal(text);
        assert!(!format!("{error} {error:?}").contains("hunter2"), "{text}: {error}");
    }
    assert_eq!(refusal("averyveryverylongscheme://x").to_string().matches("averyveryverylon\"").count(), 1);
}

#[test]
fn members_are_added_to_the_query() {
    let members = [("channel", "mcp"), ("server_key", "a b&c/\u{e9}")];
    let added = "channel=mcp&server_key=a%20b%26c%2F%C3%A9";
    assert_eq!(parse("ws://a").target_with(&members), format!("/?{added}"));
    assert_eq!(parse("ws://a/x?y=1").target_with(&members), format!("/x?y=1&{added}"));
    assert_eq!(parse("ws://a/x?").target_with(&members), format!("/x?{added}"));
    assert_eq!(parse("unix:///s").target_with(&members), format!("/?{added}"));
    assert_eq!(parse("ws://a/x").target_with(&[]), "/x");
}

#[test]
fn what_to_listen_on() {
    let cases = [
        ("127.0.0.1:0", tcp("127.0.0.1", 0)),
        ("localhost:7000", tcp("localhost", 7000)),
        ("[::1]:0", tcp("::1", 0)),
        ("ws://0.0.0.0:7000/", tcp("0.0.0.0", 7000)),
        ("unix:///run/x.sock", Endpoint::Unix("/run/x.sock".into())),
        ("npipe:////./pipe/x", Endpoint::NamedPipe("x".to_owned())),
    ];
    for (text, endpoint) in cases {
        assert_eq!(parse_listen(text), Ok(endpoint), "{text}");
    }
    let refusals = [
        ("", "host"),
        ("7000", "host"),
        (":7000", "no host"),
        ("127.0.0.1", "no port"),
        ("127.0.0.1:99999", "port"),
        ("127.0.0.1:http", "port"),
        ("::1:0", "brackets"),
        ("127.0.0.1:0/path", "path"),
        ("wss://127.0.0.1:0", "TLS"),
        ("http://127.0.0.1:0", "ws://"),
        ("unix:///x?y=1", "query"),
        ("me:hunter2@127.0.0.1:0", "credential"),
    ];
    for (text, named) in refusals {
        let error = parse_listen(text).unwrap_err().to_string();
        assert!(error.contains(named) && !error.contains("hunter2"), "{text:?}: {error}");
    }
}

#[test]
fn a_listener_says_how_it_is_dialled() {
    for (endpoint, url) in [
        (tcp("127.0.0.1", 7000), "ws://127.0.0.1:7000/"),
        (tcp("::1", 80), "ws://[::1]/"),
        (Endpoint::Unix("/run/x y.sock".into()), "unix:///run/x%20y.sock"),
        (Endpoint::NamedPipe("x".to_owned()), "npipe:////./pipe/x"),
    ] {
        let listening = HarnessUrl::of_listener(&endpoint);
        assert_eq!(listening.to_string(), url);
        assert_eq!(parse(url), listening);
    }
}

#[test]
fn no_text_makes_it_panic() {
    // Every short text over the characters that mean something here.
    let alphabet =
        ["ws://", "unix://", "npipe://", "[", "]", ":", "/", "?", "#", "@", "%", "a", "0", ".", "\u{e9}", "\\", "="];
    for a in alphabet {
        for b in alphabet {
            for c in alphabet {
                for d in alphabet {
                    let text = format!("{a}{b}{c}{d}");
                    if let Ok(url) = HarnessUrl::parse(&text) {
                        assert_eq!(HarnessUrl::parse(&url.to_string()), Ok(url), "{text}");
                    }
                    let _ = parse_listen(&text);
                }
            }
        }
    }
}
