//! The tokio adapter, held to the suite that every adapter is held to.

use std::sync::Arc;

use bma_runtime_tokio::{Runtime, TokioRuntime};

mod on_worker_threads {
    use super::{Arc, Runtime};

    fn run<F: Future<Output = ()>>(main: impl FnOnce(Arc<dyn Runtime>) -> F) {
        bma_runtime_tokio::run(main).expect("a runtime starts");
    }

    bma_tests::adapter_suite!(super::run);
}

mod on_one_thread {
    use super::{Arc, Runtime, TokioRuntime};

    fn run<F: Future<Output = ()>>(main: impl FnOnce(Arc<dyn Runtime>) -> F) {
        let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime starts");
        tokio.block_on(async { main(Arc::new(TokioRuntime::current())).await });
    }

    bma_tests::adapter_suite!(super::run);
}

/// The future that uses it is driven by something else.
mod from_outside {
    use super::{Arc, Runtime, TokioRuntime};

    fn run<F: Future<Output = ()>>(main: impl FnOnce(Arc<dyn Runtime>) -> F) {
        let tokio = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .expect("a runtime starts");
        futures_lite::future::block_on(main(Arc::new(TokioRuntime::new(tokio.handle().clone()))));
    }

    bma_tests::adapter_suite!(super::run);
}
