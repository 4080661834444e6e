//! Where a token shows, and where it does not.

use std::sync::Arc;

use bma_runtime::proto::contract::Secret;
use bma_runtime::{ClientOptions, Runtime, ToolError};

use super::{Rig, command};

/// Once in each upgrade's head, in no other byte that the client sends.
pub async fn the_token_stands_in_one_header_and_nowhere_else(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("ran")));
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    session.tools().bash(command("x")).await.unwrap();
    proxy.cut();
    session.tools().bash(command("x")).await.unwrap();
    // Frames are masked: what is written here is the two heads.
    let sent = String::from_utf8_lossy(&proxy.sent_up()).into_owned();
    let shown: Vec<_> = sent.lines().filter(|line| line.contains(rig.token.expose())).collect();
    let header = format!("Authorization: Bearer {}", rig.token.expose());
    assert_eq!(shown, [header.as_str(); 2]);
    assert_eq!(sent.matches("GET / HTTP/1.1\r\n").count(), 2, "no query");
    rig.finish().await;
}

/// Handles, options, events, errors; [`Rig::finish`] looks through the log.
pub async fn nothing_that_is_printed_shows_the_token(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let token = rig.token.expose().to_owned();
    let hidden = |what: &dyn std::fmt::Debug| {
        let shown = format!("{what:?} {what:#?}");
        assert!(!shown.contains(&token), "{shown}");
    };
    let options = super::options("machine", &rig.url(), &rig.token);
    hidden(&options);
    let client = rig.client_of(options);
    hidden(&client);
    let mut events = client.events();
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    hidden(&(&rig.harness, &executor, &session, session.tools(), &rig.token));
    while let Some(event) = events.try_next() {
        hidden(&event);
    }
    // A token in the URL is refused before it can go anywhere, and not repeated.
    for url in [format!("ws://{token}@127.0.0.1:1/"), format!("ws://user:{token}@127.0.0.1:1/")] {
        let refused = ClientOptions::direct("machine", &url, Secret::from(token.as_str())).unwrap_err();
        hidden(&refused);
        assert!(!refused.to_string().contains(&token), "{refused}");
    }
    // A harness that repeats what it was shown does not get it into the error.
    let wrong = rig.client_of(super::options("machine", &format!("{}nowhere", rig.url()), &Secret::from("another")));
    let end = wrong.start().await.map(drop).unwrap_err();
    hidden(&end);
    rig.finish().await;
}
