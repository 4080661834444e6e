//! Tasks and blocking work.

use std::sync::{Arc, mpsc};
use std::thread;

use bma_runtime::Runtime;
use bma_runtime::sync::oneshot;

/// Without being waited for.
pub async fn a_task_runs_on_its_own(runtime: Arc<dyn Runtime>) {
    let (to_task, from_us) = oneshot::channel();
    let (to_us, from_task) = oneshot::channel();
    runtime.spawn(Box::pin(async move { to_us.send(from_us.await.unwrap()).unwrap() }));
    to_task.send("there and back").unwrap();
    assert_eq!(from_task.await.unwrap(), "there and back");
}

/// Its parts are dropped, and others go on.
pub async fn a_task_that_panics_ends_alone(runtime: Arc<dyn Runtime>) {
    let (held, dropped) = oneshot::channel::<()>();
    runtime.spawn(Box::pin(async move {
        let _held = held;
        panic!("on purpose");
    }));
    assert!(dropped.await.is_err());
    a_task_runs_on_its_own(runtime).await;
}

/// Work waits for a task, which it can only do off the threads of tasks.
pub async fn blocking_work_leaves_tasks_running(runtime: Arc<dyn Runtime>) {
    let (to_work, from_task) = mpsc::channel();
    let (to_us, from_work) = oneshot::channel();
    runtime.run_blocking(Box::new(move || {
        let name: &str = from_task.recv().unwrap();
        to_us.send((name, thread::current().id())).unwrap();
    }));
    a_task_runs_on_its_own(runtime.clone()).await;
    runtime.spawn(Box::pin(async move { to_work.send("a task").unwrap() }));
    let (name, worker) = from_work.await.unwrap();
    assert_eq!(name, "a task");
    assert_ne!(worker, thread::current().id());
}

/// Its parts are dropped, and other work is done.
pub async fn blocking_work_that_panics_ends_alone(runtime: Arc<dyn Runtime>) {
    let (held, dropped) = oneshot::channel::<()>();
    runtime.run_blocking(Box::new(move || {
        let _held = held;
        panic!("on purpose");
    }));
    assert!(dropped.await.is_err());
    blocking_work_leaves_tasks_running(runtime).await;
}

/// More than there are threads for.
pub async fn much_blocking_work_is_all_done(runtime: Arc<dyn Runtime>) {
    let done: Vec<_> = (0..2000)
        .map(|n| {
            let (sender, receiver) = oneshot::channel();
            runtime.run_blocking(Box::new(move || sender.send(n).unwrap()));
            receiver
        })
        .collect();
    for (n, done) in done.into_iter().enumerate() {
        assert_eq!(done.await.unwrap(), n);
    }
}
