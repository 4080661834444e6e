//! Client and harness over real sockets, on tokio.

use std::sync::Arc;

use bma_runtime_tokio::{Runtime, TokioRuntime};

mod on_worker_threads {
    use super::{Arc, Runtime};

    fn run<F: Future<Output = ()>>(main: impl FnOnce(Arc<dyn Runtime>) -> F) {
        bma_runtime_tokio::run(main).expect("a runtime starts");
    }

    bma_tests::exchange_suite!(super::run);
}

mod on_one_thread {
    use super::{Arc, Runtime, TokioRuntime};

    fn run<F: Future<Output = ()>>(main: impl FnOnce(Arc<dyn Runtime>) -> F) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        tokio.block_on(async { main(Arc::new(TokioRuntime::current())).await });
    }

    bma_tests::exchange_suite!(super::run);
}
