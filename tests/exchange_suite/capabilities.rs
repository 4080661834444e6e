//! What an executor advertises, at its registration and later.

use std::sync::Arc;

use bma_runtime::proto::contract::Capabilities;
use bma_runtime::sync::{Event, Events};
use bma_runtime::{ExecutorEvent, Runtime, ToolError};

use super::{Rig, command, eventually, text};

/// Waits until the change is told.
async fn changed(events: &mut Events<ExecutorEvent>) {
    match events.next().await {
        Some(Event::Item(ExecutorEvent::CapabilitiesChanged)) => {}
        other => panic!("another event: {other:?}"),
    }
}

/// `shell` for bash, `files` for any file tool, nothing for neither.
pub async fn a_slot_advertises_what_it_serves(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let none = rig.client();
    assert_eq!(rig.join(&none).await.capabilities(), Capabilities::default());
    let shell = rig.client();
    shell.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    let capabilities = rig.join(&shell).await.capabilities();
    assert!(capabilities.has("shell") && !capabilities.has("files"));
    let files = rig.client();
    files.tools().glob(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    let executor = rig.join(&files).await;
    assert!(!executor.capabilities().has("shell") && executor.capabilities().has("files"));
    let info = executor.info();
    assert_eq!((info.name.as_str(), info.version.as_str()), ("machine", env!("CARGO_PKG_VERSION")));
    assert!(!info.os.is_empty() && !info.arch.is_empty());
    rig.finish().await;
}

/// The harness sees it, and the tool works.
pub async fn a_slot_that_comes_later_is_told(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    let executor = rig.join(&client).await;
    let session = rig.session(&executor, "s").await;
    let mut events = executor.events();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("late")));
    changed(&mut events).await;
    assert!(executor.capabilities().has("shell"));
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "late");
    // Another handler of the same tool changes nothing that is advertised.
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("later")));
    assert_eq!(text(&session.tools().bash(command("x")).await.unwrap()), "later");
    assert!(events.try_next().is_none());
    rig.finish().await;
}

/// Everything that was advertised before is replaced, but for what tools bring.
pub async fn replaced_capabilities_are_told(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let client = rig.client();
    client.tools().bash(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    let executor = rig.join(&client).await;
    let mut events = executor.events();
    client.set_capabilities(Capabilities { chrome: Some(true), ..Capabilities::default() });
    changed(&mut events).await;
    let capabilities = executor.capabilities();
    assert!(capabilities.chrome == Some(true) && capabilities.has("shell"), "{capabilities:?}");
    client.set_capabilities(Capabilities::default());
    changed(&mut events).await;
    assert_eq!(executor.capabilities().chrome, None);
    rig.finish().await;
}

/// The next registration says it.
pub async fn a_returning_executor_tells_what_changed_meanwhile(runtime: Arc<dyn Runtime>) {
    let rig = Rig::new(runtime).await;
    let proxy = rig.proxy();
    let client = rig.client_by(&proxy);
    let executor = rig.join(&client).await;
    proxy.refuse(true);
    proxy.cut();
    eventually(&rig.runtime, "the loss is noticed", || !executor.is_connected()).await;
    client.tools().read(|_, _| std::future::ready(Ok::<_, ToolError>("")));
    proxy.refuse(false);
    eventually(&rig.runtime, "it is back", || executor.is_connected()).await;
    assert!(executor.capabilities().has("files"));
    rig.finish().await;
}
