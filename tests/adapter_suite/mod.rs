//! What every [`Runtime`] is held to, whatever it is built on.
//!
//! [`adapter_suite!`](crate::adapter_suite!) makes one test of each case; an
//! adapter's test file calls it with a function that runs a future on its runtime.

pub mod clock;
pub mod net;
pub mod tasks;
#[cfg(unix)]
pub mod unix;

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, mpsc};
use std::task::Poll;
use std::thread;
use std::time::Duration;

use bma_runtime::{BoxFuture, Listener, Runtime, Stream};

/// How long a case may take before it counts as hung.
const PATIENCE: Duration = Duration::from_secs(30);

/// Makes a test of each case. `$run` takes `impl FnOnce(Arc<dyn Runtime>) -> impl Future<Output = ()>`.
#[macro_export]
macro_rules! adapter_suite {
    ($run:path) => {
        $crate::adapter_suite!(@ $run, clock:
            it_never_runs_backwards
            it_agrees_between_threads
            the_wall_clock_is_the_systems
            seeds_differ
            a_timer_is_never_early
            a_timer_stays_ready_until_it_is_set_anew
            a_timer_that_is_not_set_never_fires
            a_timer_is_set_to_an_earlier_time
            a_timer_is_set_to_a_later_time
            a_timer_is_ready_at_once_for_the_past_and_never_for_the_end_of_time
            a_timer_that_is_due_shows_in_a_busy_task
            many_timers_fire_in_time
        );
        $crate::adapter_suite!(@ $run, tasks:
            a_task_runs_on_its_own
            a_task_that_panics_ends_alone
            blocking_work_leaves_tasks_running
            blocking_work_that_panics_ends_alone
            much_blocking_work_is_all_done
        );
        $crate::adapter_suite!(@ $run, net:
            bytes_come_back_and_the_end_is_seen
            a_name_is_dialled_by_any_of_its_addresses
            ipv6_works_where_the_system_has_it
            a_full_stream_makes_its_writer_wait
            many_slices_are_written_in_order
            a_stream_that_is_dropped_is_closed
            a_connection_that_is_reset_says_so
            many_connections_are_all_accepted
            a_port_in_use_is_refused
            a_port_that_nobody_listens_on_refuses
            a_listener_that_is_dropped_frees_its_port
        );
        #[cfg(unix)]
        $crate::adapter_suite!(@ $run, unix:
            a_socket_carries_bytes_and_is_for_its_owner_alone
            a_socket_that_somebody_listens_on_is_kept
            a_socket_that_was_left_behind_is_replaced
            a_file_that_is_no_socket_is_kept
            a_successors_socket_is_not_removed
            a_named_pipe_is_refused_with_a_reason
            a_pipe_is_read_to_its_end
            a_pipe_is_written_until_it_is_closed
            a_pipe_whose_reader_is_gone_breaks
            a_pipe_goes_one_way
            a_full_pipe_makes_its_writer_wait
            a_pipe_that_is_dropped_is_closed
            a_regular_file_cannot_be_waited_for
            a_pty_goes_both_ways_and_ends
            a_pty_that_is_opened_again_goes_on
            a_child_that_exits_makes_its_pidfd_ready
        );
    };
    (@ $run:path, $area:ident: $($case:ident)*) => {
        mod $area {
            $(
                #[test]
                fn $case() {
                    let _watchdog = $crate::adapter_suite::Watchdog::new(module_path!(), stringify!($case));
                    $run($crate::adapter_suite::in_time($crate::adapter_suite::$area::$case));
                }
            )*
        }
    };
}

/// A case that panics when it hangs.
pub fn in_time<F>(case: impl FnOnce(Arc<dyn Runtime>) -> F) -> impl FnOnce(Arc<dyn Runtime>) -> BoxFuture<()>
where
    F: Future<Output = ()> + Send + 'static,
{
    |runtime| {
        let mut alarm = runtime.timer();
        alarm.set(Some(runtime.now() + PATIENCE));
        let mut case = Box::pin(case(runtime));
        Box::pin(poll_fn(move |cx| {
            // First, so that a case which missed its own wake-up is not saved by this one.
            assert!(alarm.poll_expired(cx).is_pending(), "not done after {PATIENCE:?}");
            case.as_mut().poll(cx)
        }))
    }
}

/// Ends the whole test run when a case hangs in a way that its own timer cannot
/// notice: a poll that never returns. Dropped when the case is over.
#[derive(Debug)]
pub struct Watchdog {
    _over: mpsc::Sender<()>,
}

impl Watchdog {
    /// Watches over `case`.
    pub fn new(area: &'static str, case: &'static str) -> Self {
        let (over, wait) = mpsc::channel();
        thread::spawn(move || {
            if wait.recv_timeout(2 * PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                eprintln!("{area}::{case} hangs in one poll: ending the test run");
                std::process::abort();
            }
        });
        Watchdog { _over: over }
    }
}

/// Waits for a timer of the runtime's own, for cases that are about time.
pub async fn sleep(runtime: &Arc<dyn Runtime>, duration: Duration) {
    let mut timer = runtime.timer();
    timer.set(Some(runtime.now() + duration));
    poll_fn(|cx| timer.poll_expired(cx)).await;
}

/// The next stream and the peer's name.
pub async fn accept(listener: &mut Box<dyn Listener>) -> (Box<dyn Stream>, String) {
    poll_fn(|cx| listener.poll_accept(cx)).await.unwrap()
}

/// Whether a future waits, seen by polling it once.
pub async fn waits<T>(future: impl Future<Output = T>) -> bool {
    let mut future = pin!(future);
    poll_fn(|cx| Poll::Ready(future.as_mut().poll(cx).is_pending())).await
}
